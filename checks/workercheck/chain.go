package workercheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

const (
	// survivor is the age from which a living replacement says that a child of
	// main we never saw was no worker that failed; chosen: ten times the life
	// of a worker in a fast loop.
	survivor = 100 * time.Millisecond
	// respawnsKept is how many respawn times the median is of; chosen.
	respawnsKept = 15
	// agesKept bounds the ages the median is of; chosen.
	agesKept = 101
)

// chain counts replacements that failed one after the other.
type chain struct {
	open  bool
	began time.Duration // the death of the last worker that had served
	last  time.Duration // the death of the last link
	links int
	died  int
	// oldest is the greatest age of one that died.
	oldest time.Duration
	ages   []time.Duration
	exits  map[string]int
}

// takeEvents takes the events not yet taken, by time. It reports whether a
// worker that had served died among them.
func (t *Tracker) takeEvents(s *host.Snapshot) (servedDeath bool) {
	var fresh []host.Event
	if len(s.Events) > 0 && t.seq != 0 && s.Events[0].Seq > t.seq+1 {
		// We were too slow and lack some: what they would have broken is unknown.
		t.chain, t.pending, t.slots = chain{}, nil, slots{}
	}
	for _, e := range s.Events {
		if e.Seq > t.seq {
			fresh = append(fresh, e)
		}
	}
	if n := len(s.Events); n > 0 {
		t.seq = max(t.seq, s.Events[n-1].Seq)
	}
	// Deaths carry the moment the kernel told us, so their order may differ
	// from that in which a sweep met them.
	slices.SortStableFunc(fresh, func(a, b host.Event) int { return cmp.Compare(a.At, b.At) })
	for i := range fresh {
		e := &fresh[i]
		if e.Kind == host.Death || e.Kind == host.MainDeath || e.Kind == host.Unseen {
			t.lastExit = max(t.lastExit, e.At)
		}
		if e.Kind == host.MainDeath {
			t.mains.ended(e)
		}
		if e.Main != t.main {
			continue
		}
		switch {
		case e.Kind == host.Birth:
			t.birth(e)
			if !t.alone() && !e.Brief {
				t.slots.fill(e.Process, e.Born)
			}
		case e.Kind == host.Unseen:
			t.birth(e)
			t.unseen(s, e)
		case e.Kind == host.Death && e.Brief:
			t.unseen(s, e)
		case e.Kind == host.Death:
			servedDeath = t.death(s, e) || servedDeath
		}
	}
	return servedDeath
}

// unseen takes the end of a child that no sweep saw: a worker that failed, unless
// one lives that would have been it.
func (t *Tracker) unseen(s *host.Snapshot, e *host.Event) {
	if !t.alone() && (inside.Failed(e) || !e.Exit.Known) {
		t.slots.unseen(e)
	}
	if !t.survivors(s) {
		t.death(s, e)
	}
}

func (t *Tracker) birth(e *host.Event) {
	t.lastBirth = max(t.lastBirth, e.Born)
	t.bornBy = max(t.bornBy, e.At)
	m := t.members[e.Process]
	if m == nil {
		m = &member{} // dead already, or unseen
	}
	if t.alone() || len(t.pending) == 0 {
		m.relief = t.hold && t.served && t.noneLooks == 0
		return
	}
	v := t.pending[0]
	t.pending = t.pending[1:]
	m.replacement = v.bad
	t.respawns = append(t.respawns, max(0, e.Born+Tick-v.at))
	t.respawns = t.respawns[max(0, len(t.respawns)-respawnsKept):]
}

// survivors reports whether a worker lives that was born since the chain began
// and is too old for a fast loop.
func (t *Tracker) survivors(s *host.Snapshot) bool {
	return slices.ContainsFunc(s.Workers, func(w host.Process) bool {
		return w.State == checks.ProcAlive && w.Born >= t.chain.began && w.Age >= survivor
	})
}

// death takes the end of one child of main and reports whether it had served.
func (t *Tracker) death(s *host.Snapshot, e *host.Event) (served bool) {
	m, known := t.members[e.Process]
	if !known {
		m = &member{}
	}
	old := e.Kind == host.Death && e.Age() >= t.youngest()
	helper := old && known && t.hold && !m.held && !m.listens && !m.served
	bad := inside.Failed(e) || !e.Exit.Known && !old
	if m.draining || helper || t.alone() || !inside.Failed(e) && t.relieved(s, e) {
		t.slots.vacate(e, false, t.expected)
		return false // nobody misses it
	}
	t.slots.vacate(e, bad, t.expected)
	t.lastDeath = max(t.lastDeath, e.At)
	if slices.Contains(t.steady, e.Process) && inside.Failed(e) {
		t.unsteady = true
	}
	t.pending = append(t.pending, vacancy{e.At, bad || !old})
	if bad && m.served {
		t.lost = e.At
	}
	if bad {
		if t.served { // too early to have learnt how many there should be: as many as there were
			t.expected = max(t.expected, t.first)
		}
		t.crashed, t.demand = true, false
		t.solo = t.solo && (t.firm || !t.hold)
	}
	link := !old || inside.Failed(e) && m.replacement && e.Age() < outlived
	switch {
	case t.chain.open && link:
		t.chain.add(e)
	case old || m.served || bad: // bad and young: a pool that was at rest
		t.chain = chain{open: true, began: e.At, last: e.At, exits: map[string]int{}}
	}
	if old || m.served {
		t.served = true
		t.lastSome = max(t.lastSome, e.At)
	}
	return old || m.served
}

// relieved reports whether as many workers as expected were there beside the
// one that ended, surely born before it did: a reload, not a loss.
func (t *Tracker) relieved(s *host.Snapshot, e *host.Event) bool {
	n := 0
	for i := range s.Workers {
		w := &s.Workers[i]
		if w.ID != e.Process && w.State == checks.ProcAlive && (w.Listens || w.FDsUnknown) && w.Born+Tick <= e.At {
			n++
		}
	}
	return t.expected > 0 && n >= t.expected
}

// add takes the death of a worker that had not served: at any exit, for it was
// younger than StartTime, or abnormal.
func (c *chain) add(e *host.Event) {
	if e.Born+Tick <= c.began {
		return // a sibling of those whose death began the chain
	}
	c.died++
	c.exits[e.Exit.String()]++
	c.oldest = max(c.oldest, e.Age())
	if e.Kind == host.Death && len(c.ages) < agesKept {
		c.ages = append(c.ages, max(0, e.Age()))
	}
	// Born is a lower bound and last an upper one: the worker was born after
	// its predecessor died, whatever the clock's grain. Siblings of one round
	// were born before it and lengthen nothing.
	if e.Born >= c.last {
		c.links++
		c.last = e.At
	}
}
