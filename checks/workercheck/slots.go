package workercheck

import (
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

const (
	// loopDeaths and loopWithin make a slot loop: its last 3 occupants died badly
	// within 60 s (JUDGING section 3, P1k).
	loopDeaths = 3
	loopWithin = 60 * time.Second
)

// slots are the places of a generation's workers. Nobody tells which worker
// replaces which, so it is inferred: a birth fills the place that has been vacant
// longest. The zero value has none.
type slots struct{ all []slot }

type slot struct {
	occupant host.ID // zero while vacant
	born     time.Duration
	vacant   time.Duration // since when
	// deaths are the ends of its last occupants, if all of those were bad, oldest
	// first, at most loopDeaths, and ages how old they were.
	deaths, ages []time.Duration
}

// lost takes the bad end of an occupant.
func (s *slot) lost(e *host.Event) {
	s.deaths, s.ages = append(s.deaths, e.At), append(s.ages, e.Age())
	over := max(0, len(s.deaths)-loopDeaths)
	s.deaths, s.ages = s.deaths[over:], s.ages[over:]
}

// fill gives a newborn its place.
func (t *slots) fill(id host.ID, born time.Duration) {
	best := -1
	for i := range t.all {
		s := &t.all[i]
		if s.occupant == (host.ID{}) && (best < 0 || s.vacant < t.all[best].vacant) {
			best = i
		}
	}
	if best < 0 {
		t.all = append(t.all, slot{})
		best = len(t.all) - 1
	}
	t.all[best].occupant, t.all[best].born = id, born
}

// vacate takes the end of a worker. expected is how many places are known to be
// needed: one that was left in peace beyond them was an old generation's.
func (t *slots) vacate(e *host.Event, bad bool, expected int) {
	i := slices.IndexFunc(t.all, func(s slot) bool { return s.occupant == e.Process })
	if i < 0 {
		return
	}
	s := &t.all[i]
	s.occupant, s.vacant = host.ID{}, e.At
	switch {
	case !bad && len(t.all) > expected:
		t.all = slices.Delete(t.all, i, i+1)
	case !bad:
		s.deaths, s.ages = nil, nil
	default:
		s.lost(e)
	}
}

// unseen takes a worker that was born and died between two sweeps. It had the
// place that has been vacant longest, of those that were vacated badly: otherwise
// it may have been no worker.
func (t *slots) unseen(e *host.Event) {
	best := -1
	for i := range t.all {
		s := &t.all[i]
		if s.occupant == (host.ID{}) && len(s.deaths) > 0 && (best < 0 || s.vacant < t.all[best].vacant) {
			best = i
		}
	}
	if best < 0 {
		return
	}
	s := &t.all[best]
	s.vacant = e.At
	s.lost(e)
}

// looping counts the places that loop at now, and since when the first has. A
// place has healed when its occupant serves, at the age of ready, and has lived
// twice as long as those before it: as their median, for the first of them may
// have been well for years.
func (t *slots) looping(now, ready time.Duration) (n int, since time.Duration) {
	for i := range t.all {
		s := &t.all[i]
		if len(s.deaths) < loopDeaths || s.deaths[loopDeaths-1]-s.deaths[0] > loopWithin {
			continue
		}
		healed := s.occupant != (host.ID{}) && now-s.born >= max(ready, 2*median(s.ages))
		if healed || now-s.deaths[loopDeaths-1] > loopWithin {
			continue
		}
		if n == 0 || s.deaths[0] < since {
			since = s.deaths[0]
		}
		n++
	}
	return n, since
}
