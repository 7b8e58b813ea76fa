package host

import (
	"cmp"
	"slices"
	"time"
)

// brief is a child of main of which the process connector told and which no
// sweep has seen yet. Most become workers; some are gone before anybody looks.
type brief struct {
	pid  int
	born time.Duration
	// told is its end, if it was told.
	told told
	// missed: a sweep found it neither in main's list nor in /proc.
	missed bool
}

// told is an end as the process connector told it; at is 0 if it did not.
type told struct {
	at   time.Duration
	exit Exit
}

// briefsKept bounds what is remembered between two sweeps of a target; chosen:
// four times what the kernel keeps for us.
const briefsKept = 4096

// briefsTold is of how many a sweep records birth and death, the youngest; all
// are counted. Chosen: half of EventsKept, so that a reader who looks after each
// sweep misses nothing and does not begin anew.
const briefsTold = EventsKept / 4

// told takes an event. fits says that it concerns the target, full that it was
// forgotten.
func (t *target) told(e *procEvent, at, now time.Duration) (fits, full bool) {
	if t.main == nil || t.status != MainAlive {
		return false, false
	}
	main := t.main.view.PID
	switch {
	case e.kind == procFork:
		if e.parent != main {
			return false, false
		}
		return true, !t.forked(e.pid, at, now)
	case e.pid == main:
		t.main.told = told{at, exitFromStatus(e.status)}
		t.hurry(now)
		return true, false
	case e.parent == main || e.parent == 0:
		return t.ended(e, at, now) || e.parent == main, false
	}
	return false, false
}

// forked remembers a child until a sweep meets it or it ends. A calm target is
// not swept for it: its birth is known exactly, whenever it is read.
func (t *target) forked(pid int, at, now time.Duration) bool {
	if t.cfg.WorkersBy == workersByName {
		return true // whether it is a worker only its name tells, once it has one
	}
	if len(t.briefs) >= briefsKept {
		return false
	}
	if t.briefs == nil {
		t.briefs = map[int]*brief{}
	}
	t.briefs[pid] = &brief{pid: pid, born: at}
	if t.fast {
		t.hurry(now)
	}
	return true
}

// ended remembers how a child ended and reports whether it knows it.
func (t *target) ended(e *procEvent, at, now time.Duration) bool {
	end := told{at, exitFromStatus(e.status)}
	if b := t.briefs[e.pid]; b != nil {
		b.told = end
		t.hurry(now)
		return true
	}
	for id, p := range t.kids {
		if id.PID == e.pid && !p.dead {
			p.told = end
			t.hurry(now)
			return true
		}
	}
	return false
}

// end is how a process ended, if that was told.
func (t *target) end(p *proc) told {
	if b := t.briefs[p.view.PID]; b != nil && b.told.at != 0 {
		return b.told
	}
	return p.told
}

// settleBriefs turns briefs into what they were: known to the sweep that just
// ended, or a birth and a death that no sweep saw. explained says that one of
// them was reaped.
func (o *Observer) settleBriefs(t *target, now time.Duration) (explained bool) {
	if len(t.briefs) == 0 {
		return false
	}
	met := make(map[int]*proc, len(t.kids))
	for id, p := range t.kids {
		met[id.PID] = p
	}
	var over []*brief
	for pid, b := range t.briefs {
		p := met[pid]
		switch {
		case p != nil:
			if !p.dead {
				p.told = b.told
			}
			delete(t.briefs, pid)
		case b.told.at != 0:
			over = append(over, b)
		default:
			explained = o.missing(t, b, now, &over) || explained
		}
	}
	slices.SortFunc(over, func(a, b *brief) int { return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.pid, b.pid)) })
	for i, b := range over {
		delete(t.briefs, b.pid)
		t.lastExit = now
		o.stats.exits.Add(1)
		if i >= len(over)-briefsTold {
			t.recordBrief(b, now)
		}
	}
	return explained || len(over) > 0
}

// missing looks for a brief that main's list lacked and whose end was not told.
// The list is racy while main forks, and an end may be told a moment after main
// has reaped, so that it is given up at the second sweep.
func (o *Observer) missing(t *target, b *brief, now time.Duration, over *[]*brief) (reaped bool) {
	s, err := o.kernel.fs.stat(b.pid)
	switch {
	case err == nil && s.ppid == t.main.view.PID:
		return false // the next list has it
	case err == nil || !gone(err) || o.hidden(b.pid):
		delete(t.briefs, b.pid) // it lives on under another parent, or may not be seen
		return false
	case b.missed:
		b.told.at = now
		*over = append(*over, b)
	}
	b.missed = true
	t.lastExit = now
	return true
}

// recordBrief records the birth and the death of a process that no sweep saw.
func (t *target) recordBrief(b *brief, now time.Duration) {
	// Its start ticks were never read: the kernel floors the same clock.
	id := ID{PID: b.pid, StartTicks: uint64(b.born / tick)}
	t.record(Event{Kind: Birth, Process: id, Born: b.born, At: b.born, Brief: true})
	t.record(Event{Kind: Death, Process: id, Born: b.born, At: min(now, b.told.at), Exit: b.told.exit, Brief: true})
}
