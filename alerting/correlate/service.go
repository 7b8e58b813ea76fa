package correlate

import (
	"cmp"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// service is what the judge knows of one service in its region.
type service struct {
	policy    policy.Service
	instances []*instance
	public    []*outsideCheck // looks at the public name
	outside   []*outsideCheck // public and pinned
	places    map[string]placeVote
	marks     []mark // room for a tally, by place
	state     State
	suspicion suspicion
	doubts    doubts

	deadline time.Time
	index    int // in the judge's deadlines; -1 outside
}

func newService(p policy.Service, places []policy.Place, byCheck map[string]checkRef) *service {
	s := &service{policy: p, index: -1, places: map[string]placeVote{}}
	if s.policy.RestartGrace == 0 {
		s.policy.RestartGrace = policy.DefaultRestartGrace
	}
	for _, pl := range places {
		if pl.Region == p.Region {
			s.places[pl.Name] = placeVote{index: len(s.places), network: pl.Network}
		}
	}
	s.marks = make([]mark, len(s.places))
	s.state.Scope = Scope{Service: p.Name, Region: p.Region}
	byName := map[string]*instance{}
	for _, name := range p.Instances {
		i := &instance{name: name}
		byName[name] = i
		s.instances = append(s.instances, i)
	}
	for _, c := range p.Checks {
		owner := byName[c.Instance]
		if c.Kind.Inside() {
			in := &insideCheck{check: c}
			switch c.Kind {
			case checks.KindWorkers:
				owner.workers = append(owner.workers, in)
			case checks.KindHeartbeat:
				owner.heartbeats = append(owner.heartbeats, in)
			default:
				owner.listeners = append(owner.listeners, in)
			}
			byCheck[c.ID] = checkRef{service: s, inside: in, owner: owner}
			continue
		}
		out := &outsideCheck{check: c, byVantage: map[evidence.Vantage]*ballot{}}
		s.outside = append(s.outside, out)
		if owner != nil {
			owner.pinned = append(owner.pinned, out)
		} else {
			s.public = append(s.public, out)
		}
		byCheck[c.ID] = checkRef{service: s, outside: out}
	}
	for _, i := range s.instances {
		i.alone = len(i.workers)+len(i.listeners)+len(s.outside) == 0
	}
	if len(s.outside) > 0 {
		s.state.Tally.Configured = len(s.places)
	}
	return s
}

// placeVote is a place of the service's region.
type placeVote struct {
	index   int
	network string
}

// ballotOf returns the vantage's ballot on a check, a new one if it has none.
func (s *service) ballotOf(o *outsideCheck, v evidence.Vantage) *ballot {
	if b := o.byVantage[v]; b != nil {
		return b
	}
	b := &ballot{vantage: v, place: -1}
	if pl, ok := s.places[v.Place]; ok {
		b.place, b.network = pl.index, pl.network
	}
	o.add(b)
	return b
}

// refs lists the evidence that is valid at now, inside first, in a fixed order.
func (s *service) refs(now time.Time) []Ref {
	var out []Ref
	for _, i := range s.instances {
		for _, group := range i.inside() {
			for _, c := range group {
				if valid(&c.cur, c.check, now) {
					out = append(out, refOf(Inside, &c.cur))
				}
			}
		}
	}
	inside := len(out)
	for _, o := range s.outside {
		for _, b := range o.ballots {
			if valid(&b.cur, o.check, now) {
				out = append(out, refOf(Outside, &b.cur))
			}
		}
	}
	slices.SortStableFunc(out[inside:], func(a, b Ref) int { return cmp.Compare(a.Check, b.Check) })
	return out
}

// nextDeadline is when a piece of evidence next stops being evidence, or a look
// on demand is due. Zero if nothing will happen by time alone.
func (s *service) nextDeadline(now time.Time) time.Time {
	next := s.suspicion.due
	consider := func(e *evidence.Stored, c policy.Check) {
		if !valid(e, c, now) {
			return
		}
		if t := e.LookTime().Add(c.Validity()); next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, i := range s.instances {
		for _, group := range i.inside() {
			for _, c := range group {
				consider(&c.cur, c.check)
			}
		}
	}
	for _, o := range s.outside {
		for _, b := range o.ballots {
			consider(&b.cur, o.check)
		}
	}
	return next
}
