package inside

import (
	"maps"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

const (
	// Leaving is what nginx writes into the title of a worker that finishes its
	// connections (ngx_worker_process_cycle).
	Leaving = "is shutting down"
	// overlap is how long before the listener was closed nobody may have been born
	// who holds it: on a reload the new workers are born milliseconds before the old
	// ones close it (measured: nginx, gunicorn); chosen: far more than that.
	overlap = 5 * time.Second
	// apart is how far the closing and the first peaceful end may lie apart;
	// measured 0 to 0.4 s (apache, gunicorn, php-fpm), chosen with a reserve.
	apart = time.Second
	// leftAlone is how long a main may outlive its last worker on its way out;
	// measured: apache and uwsgi up to 1 s, for they reap once a second; chosen with
	// a reserve for a busy host.
	leftAlone = 5 * time.Second
)

// Stop recognises a graceful stop by what is seen of the processes alone. The
// zero value is ready. One instance, one goroutine.
type Stop struct {
	main    host.ID
	seq     uint64           // of the last event taken
	held    map[host.ID]bool // who has held the listener
	born    time.Duration    // the last birth
	newest  time.Duration    // the birth of the youngest who holds the listener now
	ended   time.Duration    // the last peaceful end
	failed  time.Duration    // the last other one
	batch   batch            // peaceful ends that came together
	closing time.Duration    // since when somebody who lives has closed it; 0 if nobody has
	ran     time.Duration    // the CPU time of main at the last look
	asleep  time.Duration    // the same at the look before the closing
	awake   bool             // main ran as the listener was closed
	mass    time.Duration    // since when most workers have ended at once; 0 if they have not
	lived   time.Duration    // when a worker was last seen alive
	since   time.Duration    // of the stop; 0 if there is none
}

// batch is a number of ends within apart of the first.
type batch struct {
	first time.Duration
	n     int
}

// For returns how long the service has been stopping at now; ok is false if it
// is not, as far as can be seen.
func (t *Stop) For(now time.Duration) (since time.Duration, ok bool) {
	if t.since == 0 {
		return 0, false
	}
	return max(0, now-t.since), true
}

// Observe takes a snapshot without trouble.
//
// Stopping is one of three things. For all but the title: if nobody failed in the 5 s before it or since,
// nobody was born since, and nobody holds the listener who was born in the 5 s
// before it:
//
//   - somebody who held the listener and lives has closed the descriptor (a
//     listener that was shut and is still held does not count, nor one that
//     vanished with its process), and a worker has ended in peace at that time;
//   - nobody holds it any more, and a living worker says in its title that it leaves
//     (nginx), or main, which never held it, was woken at that time (haproxy);
//   - two workers or more, and more than are left, have ended in peace within a
//     second, while main is not stopped (uwsgi closes nothing).
//
// A descriptor closed by a bug or a debugger while everybody lives on is
// therefore no stop, and neither is a reload: somebody is born.
func (t *Stop) Observe(s *host.Snapshot) {
	if s.Main.Process.ID != t.main {
		*t = Stop{main: s.Main.Process.ID, seq: t.seq, held: map[host.ID]bool{}}
	}
	t.events(s)
	if s.Main.Status != host.MainAlive || s.FDsUnknown != "" {
		return // a main that went on its way out has been stopping to the end
	}
	closers, said, holders := t.closers(s)
	switch {
	case closers == 0:
		t.closing, t.awake = 0, false
	case t.closing == 0:
		t.closing, t.asleep = s.At, t.ran
	}
	t.ran = s.Main.Process.Clock
	t.newest = 0
	for i := range s.Workers {
		if w := &s.Workers[i]; w.Listens && w.State == checks.ProcAlive {
			t.newest = max(t.newest, w.Born)
		}
	}
	t.observeMass(s)
	told := closers > 0 && holders == 0 && (said > 0 || t.woken(s) && !t.disturbed(t.closing))
	seen := closers > 0 && t.ended > 0 && t.ended >= t.closing-apart && !t.disturbed(t.closing)
	switch {
	case !told && !seen && t.mass == 0:
		if t.disturbed(t.since) || s.At-t.lived > leftAlone {
			t.since = 0 // else main alone is left, and ends now
		}
	case t.since == 0:
		t.since = s.At
		for _, at := range []time.Duration{t.closing, t.mass} {
			if at > 0 {
				t.since = min(t.since, at)
			}
		}
	}
}

// observeMass keeps mass.
func (t *Stop) observeMass(s *host.Snapshot) {
	left := 0
	for i := range s.Workers {
		if w := &s.Workers[i]; (w.State == checks.ProcAlive || w.State == checks.ProcStopped) && t.held[w.ID] {
			left++
		}
	}
	if left > 0 {
		t.lived = s.At
	}
	switch {
	case t.mass == 0 && t.batch.n >= 2 && t.batch.n > left && left > 0:
		t.mass = t.batch.first
	case left == 0 && s.At-t.lived > leftAlone:
		t.mass = 0 // whoever is left without workers ends now, or never meant to
	}
	if t.mass > 0 && (s.Main.Process.State == checks.ProcStopped || t.disturbed(t.mass)) {
		t.mass = 0
	}
}

// woken reports whether a haproxy's main, which sleeps for days, ran just as the
// listener went: it was told to stop, and told its worker. haproxy closes without
// another sign, and one worker has no sibling to end. Other mains are told many
// things.
func (t *Stop) woken(s *host.Snapshot) bool {
	main := &s.Main.Process
	if _, holds := t.held[main.ID]; holds || main.Comm != "haproxy" || t.asleep == 0 {
		return false
	}
	t.awake = t.awake || main.Clock > t.asleep && s.At-t.closing <= apart
	return t.awake
}

// disturbed reports whether what happened near a moment, or since, is no stop.
func (t *Stop) disturbed(at time.Duration) bool {
	return t.born > at || t.failed > 0 && t.failed >= at-overlap || t.newest > 0 && t.newest >= at-overlap
}

func (t *Stop) events(s *host.Snapshot) {
	for i := range s.Events {
		e := &s.Events[i]
		if e.Seq <= t.seq {
			continue
		}
		t.seq = e.Seq
		switch {
		case e.Main != t.main:
		case e.Kind == host.Unseen:
			// Counters alone tell of it; a reload's new workers are seen. Measured on
			// gunicorn: now and then one as the last worker is reaped.
		case e.Kind == host.Birth:
			t.born = max(t.born, e.Born)
		case e.Kind == host.Death && (Failed(e) || !e.Exit.Known && e.Age() < time.Second):
			t.failed = max(t.failed, e.At)
		case e.Kind == host.Death:
			t.ended = max(t.ended, e.At)
			if t.batch.n == 0 || e.At-t.batch.first > apart {
				t.batch = batch{first: e.At}
			}
			t.batch.n++
		}
	}
}

// closers counts the living that held the listener and have closed it, those
// whose title says that they leave, and those that hold it still.
func (t *Stop) closers(s *host.Snapshot) (closers, said, holders int) {
	shut := false // the descriptors are there, but listen no more
	for i := range s.Listeners {
		shut = shut || s.Listeners[i].Held
	}
	see := func(p *host.Process) {
		_, known := t.held[p.ID]
		switch {
		case p.State != checks.ProcAlive && p.State != checks.ProcStopped || p.FDsUnknown:
		case p.Listens:
			holders++
			if p.Age >= Youth(&s.Host) {
				t.held[p.ID] = true
			}
		case known && !shut:
			closers++
			if strings.Contains(p.Title, Leaving) {
				said++
			}
		}
	}
	see(&s.Main.Process)
	for i := range s.Workers {
		see(&s.Workers[i])
	}
	if len(t.held) > 2*len(s.Workers)+heldSlack {
		t.forget(s)
	}
	return closers, said, holders
}

// heldSlack is how many of the dead may be remembered before they are looked for;
// chosen: so that it is rare.
const heldSlack = 16

// forget drops those that are no longer there.
func (t *Stop) forget(s *host.Snapshot) {
	there := map[host.ID]bool{s.Main.Process.ID: true}
	for i := range s.Workers {
		there[s.Workers[i].ID] = true
	}
	maps.DeleteFunc(t.held, func(id host.ID, _ bool) bool { return !there[id] })
}

// Failed reports an end that nobody asks a process for. A signal with which
// managers end processes on a reload or stop is none, nor is an unknown end.
func Failed(e *host.Event) bool {
	switch e.Exit.Signal {
	case 1, 2, 3, 10, 12, 15: // HUP, INT, QUIT, USR1, USR2, TERM
		return false
	}
	if strings.HasPrefix(e.Comm, "uwsgi") && e.Exit.Signal == 0 {
		switch e.Exit.Code {
		case 15, 17, 29, 30: // uwsgi.h: cheap, reload, quiet, end (seen: 17 and 30)
			return false
		}
	}
	return e.Exit.Abnormal()
}
