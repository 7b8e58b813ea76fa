package correlate

import (
	"cmp"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// Ask wants a look on demand: cross-checking on suspicion.
type Ask struct {
	Vantage evidence.Vantage
	Check   string
	// Trigger says what the look was asked for; it travels with the evidence.
	Trigger string
}

// The budget of looks on demand (JUDGING section 4, "Do not kick a man who is
// down"): at once, then after 1, 2 and 4 s, then the schedule alone. Calm for
// 10 s (chosen: over two default http intervals) begins anew.
var askPauses = [...]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

const calmAfter = 10 * time.Second

// suspicion is a service's budget of looks on demand.
type suspicion struct {
	asked int       // rounds asked in this suspicion
	last  time.Time // when the last round was asked
	due   time.Time // when the next round is wanted; zero if none is
	calm  time.Time // since when nothing is suspicious; zero while something is
}

// wantedLooks returns the looks on demand that are due at now.
func (s *service) wantedLooks(now time.Time) []Ask {
	inside, outside := s.suspicious(now)
	sp := &s.suspicion
	sp.due = time.Time{}
	if !inside && !outside {
		if sp.calm.IsZero() {
			sp.calm = now
		}
		return nil
	}
	if !sp.calm.IsZero() && now.Sub(sp.calm) >= calmAfter {
		sp.asked = 0
	}
	sp.calm = time.Time{}
	if sp.asked > len(askPauses) {
		return nil
	}
	if sp.asked > 0 {
		if next := sp.last.Add(askPauses[sp.asked-1]); now.Before(next) {
			sp.due = next
			return nil
		}
	}
	sp.last = now
	sp.asked++
	if sp.asked <= len(askPauses) {
		sp.due = now.Add(askPauses[sp.asked-1])
	}
	return s.looks(inside)
}

// looks lists a look by every vantage known to watch the service from outside,
// and, unless the inside raised the suspicion itself, from inside.
func (s *service) looks(inside bool) []Ask {
	var asks []Ask
	trigger := "outside"
	if inside {
		trigger = "inside"
	}
	for _, o := range s.outside {
		if o.check.ScheduleOnly {
			continue
		}
		for _, b := range o.ballots {
			asks = append(asks, Ask{Vantage: b.vantage, Check: o.check.ID, Trigger: trigger})
		}
	}
	if inside {
		sortAsks(asks)
		return asks
	}
	for _, i := range s.instances {
		for _, group := range i.inside() {
			for _, c := range group {
				if c.cur.Seq != 0 {
					asks = append(asks, Ask{Vantage: c.cur.Vantage, Check: c.check.ID, Trigger: trigger})
				}
			}
		}
	}
	sortAsks(asks)
	return asks
}

func sortAsks(asks []Ask) {
	slices.SortFunc(asks, func(a, b Ask) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Vantage.Place, b.Vantage.Place), cmp.Compare(a.Vantage.Name, b.Vantage.Name))
	})
}

func (s *service) suspicious(now time.Time) (inside, outside bool) {
	for _, i := range s.instances {
		for _, group := range i.inside() {
			for _, c := range group {
				inside = inside || valid(&c.cur, c.check, now) && suspects(&c.cur.Finding)
			}
		}
	}
	for _, o := range s.outside {
		for _, b := range o.ballots {
			outside = outside || valid(&b.cur, o.check, now) && b.cur.Finding.Outcome == checks.Fail
		}
	}
	return inside, outside
}

// suspects reports whether an inside finding asks for outside looks: because it
// says so, or because it shows what a failing look would decide or make a page
// (P6, P7, P11, P12).
func suspects(f *checks.Finding) bool {
	switch {
	case f.Suspicious:
		return true
	case f.Workers != nil:
		w := f.Workers
		return w.Spinning > 0 || w.FDsExhausted > 0 || w.Main.State == checks.ProcStopped
	case f.Listener != nil:
		return f.Listener.ForeignLooks > 0
	}
	return false
}
