package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

// fault is one thing that can happen to the lab, and what must follow.
type fault struct {
	name string
	what string // what is injected, for a person
	// inject breaks the lab and returns the process id of the worker, if it is
	// one that breaks. heal takes it back; nil if the lab heals by itself.
	inject func(*lab.Lab) (worker int, err error)
	heal   func(l *lab.Lab, worker int) error

	verdict correlate.Verdict
	// reuseport is the verdict where each worker has a socket of its own, if it is
	// another.
	reuseport correlate.Verdict
	cause     correlate.Cause
	pages     int
	tickets   int
	// mayRise: a ticket may stand before the page.
	mayRise bool
	// within is how long page or ticket may take, and then the cause; zero means
	// toldWithin.
	within time.Duration
}

func (f *fault) lookAlike() bool { return f.pages+f.tickets == 0 }

// allows reports whether so many pages and tickets are as they must be.
func (f *fault) allows(pages, tickets int) bool {
	if f.mayRise {
		return pages == f.pages && tickets <= 1
	}
	return pages == f.pages && tickets == f.tickets
}

// patience is how long page, ticket and cause are waited for.
func (f *fault) patience() time.Duration { return cmp.Or(f.within, toldWithin) }

// severity is the highest that it must reach.
func (f *fault) severity() string {
	if f.pages > 0 {
		return pager.Page
	}
	return pager.Ticket
}

func (f *fault) verdictOf(listener string) correlate.Verdict {
	if listener == lab.Reuseport {
		return cmp.Or(f.reuseport, f.verdict)
	}
	return f.verdict
}

// all makes an inject of a command that breaks no single worker, and heals one
// of a command that needs to know none.
func all(do func(*lab.Lab) error) func(*lab.Lab) (int, error) {
	return func(l *lab.Lab) (int, error) { return 0, do(l) }
}

func heals(do func(*lab.Lab) error) func(*lab.Lab, int) error {
	return func(l *lab.Lab, _ int) error { return do(l) }
}

// poisoned is the hostname of the outage of 27 August 2026: a trailing slash
// that the load balancer reads as the opening of a regular expression.
const poisoned = "example.com/"

// spinWithin is how long is waited for a spinning worker's ticket. It is decided
// after 30 s of spinning (JUDGING section 3, P6); chosen: twice that.
const spinWithin = 60 * time.Second

// faults lists what the demo can inject. Later ones are appended.
func faults() []fault {
	return []fault{
		{
			name:    "crash-loop",
			what:    fmt.Sprintf("the control plane publishes the hostname %q; every worker that learns it hits an assertion and dies, main restarts it and replays the same state", poisoned),
			inject:  all(func(l *lab.Lab) error { return l.AddRoute(poisoned, "app-4711") }),
			heal:    heals(func(l *lab.Lab) error { return l.RemoveRoute(poisoned) }),
			verdict: correlate.Down, cause: correlate.CauseWorkersCrashLooping, pages: 1,
		},
		{
			name:    "close-listener",
			what:    "shutdown(2) on every listening socket; descriptors stay open, main and workers stay alive",
			inject:  all((*lab.Lab).ShutListeners),
			heal:    heals((*lab.Lab).Reopen),
			verdict: correlate.Down, cause: correlate.CausePortUnbound, pages: 1,
		},
		{
			name:    "kill-once",
			what:    "every worker is killed once; main replaces them, and the replacements live",
			inject:  all((*lab.Lab).KillOnce),
			verdict: correlate.Up,
		},
		{
			name:    "healthy-reload",
			what:    "a graceful reload: new workers start, the old ones finish and exit",
			inject:  all((*lab.Lab).Reload),
			verdict: correlate.Up,
		},
		{
			name:    "freeze-all",
			what:    "every worker is stopped (SIGSTOP); the kernel goes on accepting connections for them",
			inject:  all((*lab.Lab).FreezeAll),
			heal:    heals((*lab.Lab).Thaw),
			verdict: correlate.Down, cause: correlate.CauseWorkersFrozen, pages: 1,
		},
		{
			name:    "freeze-one",
			what:    "one worker of four is stopped (SIGSTOP); its siblings serve",
			inject:  (*lab.Lab).FreezeOne,
			heal:    heals((*lab.Lab).Thaw),
			verdict: correlate.Degraded, cause: correlate.CauseWorkersFrozen, tickets: 1,
		},
		{
			name: "spin-one",
			what: "one visitor sends a valid and a malformed cookie; the worker that reads them never comes back, and burns all the CPU it gets",
			inject: func(l *lab.Lab) (int, error) {
				workers, err := l.Spin(1)
				if err != nil {
					return 0, err
				}
				return workers[0], nil
			},
			heal:    (*lab.Lab).KillWorker,
			verdict: correlate.Degraded, cause: correlate.CauseWorkersSpinning, tickets: 1, within: spinWithin,
		},
		{
			name:    "steal-port",
			what:    "a stranger listens on the port and answers with a page of its own: beside the workers, half of the sockets, where they use SO_REUSEPORT; alone, after their socket was shut, where they share one",
			inject:  all((*lab.Lab).StealPort),
			heal:    heals((*lab.Lab).EvictImposter),
			verdict: correlate.Down, reuseport: correlate.Degraded, cause: correlate.CausePortStolen, pages: 1, mayRise: true,
		},
		{
			name:    "main-dead",
			what:    "kill -9 of main; its workers die with it, and nothing restarts it",
			inject:  all((*lab.Lab).KillMain),
			heal:    heals((*lab.Lab).Restart),
			verdict: correlate.Down, cause: correlate.CauseMainDead, pages: 1,
		},
		{
			name:    "main-loop",
			what:    "main dies, and is restarted again and again: each new one writes its pid file and aborts before it serves",
			inject:  all((*lab.Lab).LoopMain),
			heal:    heals((*lab.Lab).Restart),
			verdict: correlate.Down, cause: correlate.CauseMainCrashLooping, pages: 1,
		},
	}
}

// Faults lists the names of the faults, in order.
func Faults() []string {
	var names []string
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

func faultNamed(name string) (fault, error) {
	all := faults()
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, fmt.Errorf("unknown fault %q; there are: %s", name, strings.Join(Faults(), ", "))
	}
	return all[i], nil
}
