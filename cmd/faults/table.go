//go:build linux

package main

import (
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

// want is what must be said of a cell.
type want struct {
	// Not says why the cell does not exist; everything else is empty then.
	Not string
	// Verdict and one of Causes must be reached, told as Severity. Without
	// a cause nothing may be told, and Verdict must hold at the end.
	Verdict  correlate.Verdict
	Causes   []correlate.Cause
	Severity incident.Severity
	// PageIfSeen: a page is right too, but only once a look from outside failed.
	PageIfSeen bool
	// Lifecycle is one of these when the cause is known.
	Lifecycle []string
	// Because is said along with it.
	Because correlate.Cause
	// Target is the promised time from fault to cause on a quiet machine; zero if
	// none is promised. The matrix marks what took longer; the cell is wrong only
	// past limit.
	Target time.Duration
	// IfMainEnds is what must be said instead should main have ended, which some
	// do when their workers die and some only at times; nil if it must not.
	IfMainEnds *want
	// Why is the reason where a server differs, and the source of a number.
	Why string
}

// overrun is how much longer than promised a cause may take before the cell is
// wrong. Chosen: a cell that shares its machine with others is slow, not wrong.
const overrun = 8 * time.Second

func (w want) quiet() bool { return len(w.Causes) == 0 }

// limit is when the cause must be known at the latest: half as long again as
// promised, and at least overrun more.
func (w want) limit() time.Duration { return w.Target + max(overrun, w.Target/2) }

// known reports whether the state is the expected one.
func (w want) known(s correlate.State) bool {
	return s.Verdict == w.Verdict && slices.Contains(w.Causes, s.Cause)
}

// verdicts are those that a look-alike may end with.
func (w want) verdicts() []correlate.Verdict {
	if w.Verdict == correlate.Unknown { // nobody is there, as intended
		return []correlate.Verdict{correlate.Unknown, correlate.Up}
	}
	return []correlate.Verdict{w.Verdict}
}

// Builders of rows.

func down(target time.Duration, all ...correlate.Cause) want {
	return want{Verdict: correlate.Down, Causes: all, Severity: incident.Page, Lifecycle: []string{"serving"}, Target: target}
}

func degraded(target time.Duration, all ...correlate.Cause) want {
	return want{Verdict: correlate.Degraded, Causes: all, Severity: incident.Ticket, Lifecycle: []string{"serving"}, Target: target}
}

func healthy() want { return want{Verdict: correlate.Up, Lifecycle: []string{"serving"}} }

func not(why string) want { return want{Not: why} }

func (w want) why(text string) want { w.Why = text; return w }

func (w want) because(c correlate.Cause) want { w.Because = c; return w }

func (w want) lives(all ...string) want { w.Lifecycle = all; return w }

// orMainDead adds what must be said if main ends.
func (w want) orMainDead() want {
	dead := mainDead()
	w.IfMainEnds = &dead
	return w
}

// mainDead: certain at once if the outside fails, else after the grace of 10 s.
func mainDead() want { return down(500*ms, correlate.CauseMainDead).lives("gone") }

func (w want) pagesIfSeen() want { w.PageIfSeen = true; return w }

// row is what is expected of some servers when a fault happens to them. No
// servers means all that no row before named.
type row struct {
	Fault   string
	Servers []string
	Want    want
}

// Groups of servers that are alike.
var (
	oneWorker = []string{"haproxy", "varnish"}
	// Masters that wait between two births of a worker (reference, section 2).
	paced = []string{"gunicorn", "apache-prefork", "apache-event", "uwsgi"}
	// Those of them that also wait when a worker ended in peace: apache respawns
	// once a second, uwsgi sleeps for 2 s (measured 2026-11-30).
	pausing = []string{"apache-prefork", "apache-event", "uwsgi"}
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// expectations is the table: first match wins. Targets are those of a quiet machine,
// where it gives one.
var expectations = []row{
	{"crash-loop", []string{"haproxy"}, mainDead().why("its main exits with its worker (reference, i)")},
	{"crash-loop", []string{"varnish"}, down(2500*ms, correlate.CauseWorkersCrashLooping).orMainDead().
		why("its manager aborts after a few deaths of its child (reference, ii), or goes on")},
	{"crash-loop", []string{"fpm-ondemand"}, down(20*sec, correlate.CauseWorkersCrashLooping).why("a worker dies with the request that it serves: one death for each outside look, by turns in 4 slots")},
	{"crash-loop", paced, down(2500*ms, correlate.CauseWorkersCrashLooping).
		why("its master waits a second between births: known within the second failed generation + 300 ms")},
	{"crash-loop", nil, down(500*ms, correlate.CauseWorkersCrashLooping)},

	{"half-loop", oneWorker, not("one worker: half of one is all of it")},
	{"half-loop", []string{"fpm-ondemand"}, not("no slots: a worker is forked when a request comes")},
	{"half-loop", nil, degraded(5*sec, correlate.CauseWorkersCrashLooping).pagesIfSeen().
		why("P1k: a slot loops when its last 3 occupants died; a ticket, a page once a look meets a dying worker")},

	{"freeze-all", nil, down(sec, correlate.CauseWorkersFrozen)},

	{"freeze-one", oneWorker, not("one worker: freeze-all is the same")},
	{"freeze-one", []string{"nginx-reuseport", "lab-reuseport"}, degraded(10*sec, correlate.CauseWorkersFrozen).pagesIfSeen().
		why("its share of connections is lost: a page once a look is among them")},
	{"freeze-one", nil, degraded(10*sec, correlate.CauseWorkersFrozen)},

	{"spin-one", []string{"haproxy"}, down(30*sec, correlate.CauseWorkersSpinning).orMainDead().
		why("one worker of one thread: it is all of it, and its own watchdog may abort it, and main with it")},
	{"spin-one", []string{"nginx-reuseport", "lab-reuseport"}, degraded(30*sec, correlate.CauseWorkersSpinning).pagesIfSeen().
		why("its share of connections is lost: a page once a look is among them")},
	{"spin-one", nil, degraded(30*sec, correlate.CauseWorkersSpinning)},

	{"spin-all", []string{"haproxy"}, not("one worker of one thread: spin-one is the same")},
	{"spin-all", []string{"varnish"}, not("its one worker has as many threads as it likes: the machine would not survive all of them")},
	{"spin-all", nil, down(30*sec, correlate.CauseWorkersSpinning)},

	{"shut", []string{"apache-event"}, down(500*ms, correlate.CausePortUnbound).orMainDead().
		why("its main exits 0 when it cannot accept (reference, F9)")},
	{"shut", nil, down(500*ms, correlate.CausePortUnbound)},

	{"close", []string{"varnish"}, not("its acceptor sits in accept(2) on another thread, which keeps the socket open until a connection comes")},
	{"close", []string{"apache-event"}, down(5*sec, correlate.CausePortUnbound).orMainDead().
		why("its main exits when it cannot accept (reference, F9)")},
	{"close", nil, down(5*sec, correlate.CausePortUnbound).why("P2: a descriptor that was closed is held for 3 s before it is down")},

	{"imposter", []string{"varnish"}, not("its listener cannot be closed under it (close)")},
	{"imposter", nil, down(5*sec, correlate.CausePortStolen).why("it answers under the wrong identity: the body is not the server's")},

	{"intruder", []string{"lab-reuseport", "nginx-reuseport", "haproxy"}, degraded(5*sec, correlate.CausePortStolen).pagesIfSeen().
		why("it takes its share of the connections and answers none: a page once a look is among them")},
	{"intruder", nil, not("it does not set SO_REUSEPORT: the kernel refuses the second bind (EADDRINUSE)")},

	{"main-frozen", nil, degraded(10*sec, correlate.CauseMainFrozen)},

	{"zombies", nil, down(sec, correlate.CauseMainFrozen)},

	{"descriptors", []string{"gunicorn", "fpm-static", "fpm-ondemand", "apache-prefork", "apache-event"}, healthy().
		why("a worker that may open nothing ends itself (accept: EMFILE), and its main forks another with the old limit: it heals")},
	{"descriptors", nil, down(10*sec, correlate.CauseFDExhausted)},

	{"queue", nil, down(10*sec, correlate.CauseAcceptQueueStuck)},

	{"main-loop", nil, down(12*sec, correlate.CauseMainCrashLooping).lives("starting", "gone", "serving").
		why("at most RestartSec + the ready deadline of 10 s (P4); it is between two lives")},

	{"oom", oneWorker, down(20*sec, correlate.CauseWorkersCrashLooping).orMainDead().
		why("one worker: its death is the whole instance's, and main ends with it or replaces it")},
	{"oom", []string{"fpm-ondemand"}, not("no slots: a worker is forked when a request comes")},
	{"oom", nil, degraded(20*sec, correlate.CauseWorkersCrashLooping).because(correlate.CauseOOMKilled).
		why("P1k: the third death of one slot comes after 10 s")},

	// Look-alikes.

	{"kill-once", []string{"haproxy"}, mainDead().why("its main exits with its worker")},
	{"kill-once", []string{"varnish"}, healthy().orMainDead().why("its manager starts another child, or aborts (reference, i): 7.1.1 starts another")},
	{"kill-once", nil, healthy()},
	{"idle", nil, healthy()},
	{"busy", nil, healthy()},
	{"reload", nil, healthy()},
	{"stop", []string{"lab", "lab-reuseport"}, not("its stop is at once; its workers drain at a reload only")},
	{"stop", []string{"varnish"}, not("it has no graceful stop")},
	{"stop", []string{"uwsgi"}, not("its worker drops the download when it is told to end (a write is interrupted): it stops at once")},
	{"stop", nil, want{Verdict: correlate.Unknown, Lifecycle: []string{"stopping", "stopped"}}.why("intent to stop delays for 120 s (JUDGING section 1): nobody serves, and nobody is told")},
	{"upgrade", []string{"nginx", "nginx-reuseport"}, healthy()},
	{"upgrade", nil, not("only nginx replaces its binary in flight")},
	{"replace-one", oneWorker, not("one worker: kill-once is the same")},
	{"replace-one", nil, healthy()},
	{"recycle", []string{"gunicorn", "fpm-static", "fpm-ondemand", "apache-prefork", "apache-event", "uwsgi"}, healthy()},
	{"recycle", nil, not("its workers do not end after a number of requests")},
	{"zero", []string{"fpm-ondemand"}, healthy()},
	{"zero", nil, not("its pool is never at zero")},
	{"restart", nil, healthy()},
	{"starved", nil, healthy()},
}

// expect is what must be said when a fault happens to a server. A cell that no
// row names is a mistake that a test finds.
func expect(s servers.Spec, fault string) want {
	for _, r := range expectations {
		if r.Fault == fault && (r.Servers == nil || slices.Contains(r.Servers, s.Name)) {
			return r.Want
		}
	}
	return want{Not: "no row names it"}
}
