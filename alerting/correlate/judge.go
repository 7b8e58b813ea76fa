// Package correlate turns evidence into verdicts. It does no I/O, reads no
// clock, starts no goroutine and logs nothing: time is an argument, and the
// same evidence in the same order gives the same changes byte for byte.
package correlate

import (
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// Judge holds what is known of every service. It is not safe for concurrent
// use: the engine's goroutine owns it.
type Judge struct {
	now      time.Time
	services []*service
	byName   map[string]*service
	byCheck  map[string]checkRef
	boots    map[evidence.Vantage][]string // newest last, at most keptBoots
	due      deadlines
	asks     []Ask
	counts   Counts
}

// keptBoots is how many boots of a vantage are remembered, so that late
// evidence of an earlier life is known as such. Chosen: with at most one batch
// in flight per vantage, late evidence is of the life before, not of the 64th.
const keptBoots = 64

// Counts says what became of the evidence observed.
type Counts struct {
	Observed  uint64 // judged
	Duplicate uint64 // same boot and an equal or lower sequence
	Late      uint64 // of an earlier boot of its vantage
	Unknown   uint64 // of a check that policy does not have
}

type checkRef struct {
	service *service
	outside *outsideCheck
	inside  *insideCheck
	owner   *instance // for inside checks
}

// New returns a judge for a policy. It fails if the policy is not valid.
func New(p policy.Policy) (*Judge, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	j := &Judge{
		byName: map[string]*service{}, byCheck: map[string]checkRef{}, boots: map[evidence.Vantage][]string{},
	}
	for _, sp := range p.Services {
		s := newService(sp, p.Places, j.byCheck)
		j.services = append(j.services, s)
		j.byName[sp.Name] = s
	}
	return j, nil
}

// Resume tells a new judge what stood when its predecessor ended, before any
// evidence. It claims nothing; but what was bad then and shows nothing now is
// unknown, not up, as if this judge had seen it fall silent.
func (j *Judge) Resume(st State) {
	s, ok := j.byName[st.Scope.Service]
	if !ok || !st.Verdict.Bad() || s.policy.Region != st.Scope.Region {
		return
	}
	if st.Rule == ruleQuorum || st.Rule == ruleAlone {
		for _, o := range s.outside {
			o.doubt = true
		}
		return
	}
	for _, i := range s.instances {
		if len(i.workers)+len(i.listeners)+len(i.heartbeats) > 0 && (st.Scope.Instance == "" || st.Scope.Instance == i.name) {
			i.lost = true
		}
	}
}

// Observe takes in one piece of evidence. now is the greater of the previous
// now and the time at which the core stored it; time is advanced to it first.
func (j *Judge) Observe(e evidence.Stored, now time.Time) []Change {
	changes := j.Advance(now)
	ref, ok := j.byCheck[e.Check]
	if !ok {
		j.counts.Unknown++
		return changes
	}
	if !j.currentBoot(e.Vantage, e.Boot) {
		j.counts.Late++
		return changes
	}
	if !ref.take(&e) {
		j.counts.Duplicate++
		return changes
	}
	j.counts.Observed++
	return j.reconsider(ref.service, changes)
}

// Advance moves time to now and returns what changed because evidence grew old.
// Moving in one step or in many gives the same changes.
func (j *Judge) Advance(now time.Time) []Change {
	var changes []Change
	for {
		s, ok := j.due.first()
		if !ok || s.deadline.After(now) {
			break
		}
		if s.deadline.After(j.now) {
			j.now = s.deadline
		}
		changes = j.reconsider(s, changes)
	}
	if now.After(j.now) {
		j.now = now
	}
	return changes
}

// NextDeadline is when Advance next has something to do.
func (j *Judge) NextDeadline() (time.Time, bool) {
	s, ok := j.due.first()
	if !ok {
		return time.Time{}, false
	}
	return s.deadline, true
}

// Now is the judge's time.
func (j *Judge) Now() time.Time { return j.now }

// Counts returns what became of the evidence so far.
func (j *Judge) Counts() Counts { return j.counts }

// States returns every service's state, in the order of the policy.
func (j *Judge) States() []State {
	out := make([]State, len(j.services))
	for i, s := range j.services {
		out[i] = s.state
	}
	return out
}

// Evidence returns the current evidence on a service, inside first.
func (j *Judge) Evidence(name string) []Ref {
	if s, ok := j.byName[name]; ok {
		return s.refs(j.now)
	}
	return nil
}

// Asks returns the looks on demand wanted since the last call.
func (j *Judge) Asks() []Ask {
	asks := j.asks
	j.asks = nil
	return asks
}

func (j *Judge) reconsider(s *service, changes []Change) []Change {
	next := s.evaluate(j.now)
	if next.Since = s.state.Since; next.Verdict != s.state.Verdict || next.Since.IsZero() {
		next.Since = j.now
	}
	j.asks = append(j.asks, s.wantedLooks(j.now)...)
	if s.state.differs(&next) {
		next.Evidence = s.refs(j.now)
		changes = append(changes, Change{At: j.now, From: s.state.Verdict, To: next})
	} else {
		next.Evidence = s.state.Evidence // what made the verdict, not what came since
	}
	s.state = next
	s.deadline = s.nextDeadline(j.now)
	j.due.update(s)
	return changes
}

// currentBoot reports whether boot is the newest life of the vantage, and
// learns a new one.
func (j *Judge) currentBoot(v evidence.Vantage, boot string) bool {
	known := j.boots[v]
	if n := len(known); n > 0 && known[n-1] == boot {
		return true
	}
	if slices.Contains(known, boot) {
		return false
	}
	known = append(known, boot)
	if len(known) > keptBoots {
		known = slices.Delete(known, 0, 1)
	}
	j.boots[v] = known
	return true
}

// take stores evidence in its place and reports whether it was new.
func (r checkRef) take(e *evidence.Stored) bool {
	if r.inside != nil {
		if r.inside.cur.Boot == e.Boot && e.Seq <= r.inside.cur.Seq {
			return false
		}
		r.inside.cur = *e
		r.owner.learn(e)
		if look := e.LookTime(); mayBeRestart(&e.Finding) && look.After(r.service.doubts.restarting) {
			r.service.doubts.restarting = look
		}
		return true
	}
	b := r.service.ballotOf(r.outside, e.Vantage)
	if b.cur.Boot == e.Boot && e.Seq <= b.cur.Seq {
		return false
	}
	b.observe(e, r.outside.check.Validity())
	return true
}
