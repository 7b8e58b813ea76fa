package workercheck

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

// holders is what is known of who holds the listener in one generation, and of
// whether main serves by itself: a lone server, one that forks per connection,
// one that forks on demand.
type holders struct {
	hold     bool          // a worker held it past its youth
	hidden   bool          // descriptors of a child could not be read: it may hold it
	touched  time.Duration // when a child was last seen to hold it, at whatever age
	mainHeld bool          // main was seen to hold it

	lone   bool // main listens, and had no child at first sight
	solo   bool // main took our own connection itself, as far as we saw
	firm   bool // it did for certain: no child had been born for a while
	demand bool // main forks on demand: it had no worker, and we were answered
}

// alone reports whether main is the only one to hold the listener as far as we
// know: its children are helpers (git, a BGSAVE, one connection of sshd), and
// neither their births nor their deaths concern service.
func (h *holders) alone() bool { return !h.hold && !h.hidden && h.mainHeld || !h.hold && h.lone }

// learnHolders remembers who ever held the listener.
func (t *Tracker) learnHolders(s *host.Snapshot) {
	main := &s.Main.Process
	t.mainHeld = t.mainHeld || main.Listens
	present := make(map[host.ID]bool, len(s.Workers))
	for i := range s.Workers {
		w := &s.Workers[i]
		present[w.ID] = true
		m := t.members[w.ID]
		if m == nil {
			m = &member{}
			t.members[w.ID] = m
		}
		old := w.State != checks.ProcZombie && w.Age >= inside.Youth(&s.Host)
		switch {
		case w.Listens:
			m.held, m.heldAge, m.draining = m.held || old, w.Age, false
			t.touched, t.hold = s.At, t.hold || old
		case w.FDsUnknown:
			t.hidden = t.hidden || old
		case m.held && m.heldAge < StartTime && w.State == checks.ProcAlive:
			m.held = false // it took its time to close what it was born with: nginx's helpers
		}
		m.listens = w.Listens
		if w.Age >= StartTime && w.State == checks.ProcAlive && !main.Listens && !t.mainHeld {
			t.lone = false // it may serve, for all we can read
		}
	}
	// Those that left are needed until their death is taken from the events,
	// which is in this same snapshot.
	for id := range t.members {
		if !present[id] && s.Sweep != t.sweep && !deathPending(s, t.seq, id) {
			delete(t.members, id)
		}
	}
}

// mainServes decides whether main serves by itself.
func (t *Tracker) mainServes(s *host.Snapshot, serving, living int, a Answer) bool {
	p := &s.Main.Process
	if s.Main.Status != host.MainAlive || p.State != checks.ProcAlive || p.Age < StartTime {
		return false
	}
	listens := p.Listens || p.FDsUnknown
	if listens && living == 0 && len(t.members) == 0 && !s.Main.Reaped && t.lastBirth == 0 {
		t.lone = true
	}
	t.learnAnswer(s, listens, a)
	switch {
	case t.alone():
		return t.lone || t.solo // whatever its children do
	case serving > 0:
		return false
	}
	// A pool that may be at zero is well at zero while nothing waits.
	return t.solo || (t.demand || t.OnDemand && listens && !t.crashed) && t.queue.For() < waits
}

// waits is how long connections may wait for a pool at zero; chosen: several
// times what a fork takes.
const waits = time.Second

// learnAnswer takes an answer to our own connection. That of a worker is no
// proof about main: while replacements fail, one may answer before it dies.
func (t *Tracker) learnAnswer(s *host.Snapshot, listens bool, a Answer) {
	taken := a.Look == checks.LocalAnswered || a.Look == checks.LocalAccepted
	// The sweep must be younger than the answer, or it lacks births before it.
	if !listens || !taken || s.At < a.Ended {
		return
	}
	switch {
	case t.alone() && (t.touched == 0 || t.touched < a.Began-StartTime):
		t.solo = true // nobody else could, also if it forked to do so
	case !a.Empty:
	case t.bornBy < a.Began && a.Began-t.bornBy >= StartTime:
		t.solo, t.firm = true, true
	case t.bornBy < a.Began && !t.crashed: // in a loop, a birth may hide behind a death
		t.solo = true
	case !t.crashed:
		t.demand = true
	}
}
