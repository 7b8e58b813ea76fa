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
	state     State
	suspicion suspicion

	deadline time.Time
	index    int // in the judge's deadlines; -1 outside
}

func newService(p policy.Service, places map[string]policy.Place, byCheck map[string]checkRef) *service {
	s := &service{policy: p, index: -1}
	if s.policy.RestartGrace == 0 {
		s.policy.RestartGrace = policy.DefaultRestartGrace
	}
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
			if c.Kind == checks.KindWorkers {
				owner.workers = append(owner.workers, in)
			} else {
				owner.listeners = append(owner.listeners, in)
			}
			byCheck[c.ID] = checkRef{service: s, inside: in, owner: owner}
			continue
		}
		out := &outsideCheck{check: c, ballots: map[evidence.Vantage]*ballot{}}
		s.outside = append(s.outside, out)
		if owner != nil {
			owner.pinned = append(owner.pinned, out)
		} else {
			s.public = append(s.public, out)
		}
		byCheck[c.ID] = checkRef{service: s, outside: out}
	}
	s.state.Tally.Configured = s.configuredPlaces(places)
	return s
}

func (s *service) configuredPlaces(places map[string]policy.Place) int {
	if len(s.outside) == 0 {
		return 0
	}
	n := 0
	for _, p := range places {
		if p.Region == s.policy.Region {
			n++
		}
	}
	return n
}

// poll is the outside's word on a group of checks.
type poll struct {
	checks, failing, voting int
	suspected               bool // every failing one is only suspected
	cause                   Cause
	onset                   time.Time
}

func (s *service) poll(group []*outsideCheck, now time.Time, places map[string]policy.Place) poll {
	p := poll{checks: len(group), suspected: true}
	for _, o := range group {
		v := o.decide(o.count(now, places, s.policy.Region))
		if v == voteUnknown {
			continue
		}
		p.voting++
		if v == votePass {
			continue
		}
		p.failing++
		p.suspected = p.suspected && v == voteFailSuspected
		onset, cause := o.firstFail(now)
		if p.onset.IsZero() || onset.Before(p.onset) {
			p.onset, p.cause = onset, cause
		}
	}
	p.suspected = p.suspected && p.failing > 0
	return p
}

// firstFail is when the standing run of failures began, and what it means.
func (o *outsideCheck) firstFail(now time.Time) (time.Time, Cause) {
	var onset time.Time
	votes := map[Cause]int{}
	for _, b := range o.ballots {
		if b.fails == 0 || !valid(&b.cur, o.check, now) {
			continue
		}
		if onset.IsZero() || b.firstFail.Before(onset) {
			onset = b.firstFail
		}
		votes[outsideCause(b.cur.Finding.Reason)]++
	}
	if onset.IsZero() {
		onset = now
	}
	best := CauseHTTPFailing
	for _, c := range []Cause{CauseHTTPFailing, CauseTLSFailing, CauseConnectFailing, CauseDNSFailing} {
		if votes[c] > votes[best] {
			best = c
		}
	}
	return onset, best
}

// evaluate is the verdict on the service at now (JUDGING section 5).
func (s *service) evaluate(now time.Time, places map[string]policy.Place) State {
	public := s.poll(s.public, now, places)
	st := State{Scope: Scope{Service: s.policy.Name, Region: s.policy.Region}}
	var texts []string
	var brokenOnes []*instance
	down, known, lost := 0, 0, 0
	for _, i := range s.instances {
		pinned := s.poll(i.pinned, now, places)
		fails := pinned.failing > 0 || len(s.instances) == 1 && public.failing > 0
		f, ok := decideInstance(i.insight(now, fails, s.policy.RestartGrace))
		if !ok {
			f = i.standing
		}
		i.lost = ok && f.verdict == Unknown && (i.lost || i.standing.verdict.Bad())
		i.standing = f
		if i.lost {
			lost++
		}
		if !f.verdict.Bad() && pinned.failing > 0 {
			f = outsideFinding(pinned)
		}
		if f.verdict == Unknown && pinned.voting > 0 && pinned.failing == 0 {
			f.verdict = Up
		}
		if f.verdict != Unknown {
			known++
		}
		if f.verdict == Down {
			down++
		}
		if f.verdict.Bad() {
			brokenOnes = append(brokenOnes, i)
			texts = append(texts, s.instanceText(i, f))
			st.merge(f)
		}
	}
	s.tally(&st, now, places)
	switch {
	case len(brokenOnes) > 0:
		st.Verdict = Degraded
		if down == len(s.instances) || public.failing > 0 && public.failing == public.voting {
			st.Verdict = Down
		}
		if len(brokenOnes) == 1 && len(s.instances) > 1 {
			st.Scope.Instance = brokenOnes[0].name
		}
		if public.failing > 0 {
			st.addEffect(public.cause)
		}
	case public.failing > 0:
		st.merge(outsideFinding(public))
		st.Verdict = Degraded
		if public.failing == public.voting {
			st.Verdict = Down
		}
		if public.suspected {
			st.Certainty = Suspected
		}
		texts = append(texts, s.outsideText(public, now))
	case len(s.public) > 0 && public.voting == 0 && len(s.outside) == len(s.public):
		st.Verdict = Unknown // nobody could look from outside
	case lost > 0:
		st.Verdict = Unknown // the inside proved it broken and then fell silent: silence is never health
	case public.voting > 0 || len(s.instances) > 0 && known == len(s.instances):
		st.Verdict = Up
	}
	if st.Verdict.Bad() {
		st.Sentence = sentence(&st, texts)
	}
	return st
}

func outsideFinding(p poll) finding {
	rule := "quorum"
	if p.suspected {
		rule = "alone"
	}
	return finding{verdict: Down, proof: Proof{Rule: rule, Cause: p.cause}, at: p.onset, page: true}
}

// merge makes the earliest onset the cause and the rest effects (JUDGING
// section 6).
func (st *State) merge(f finding) {
	if st.Cause == "" {
		st.Cause, st.Rule, st.Onset, st.Certainty = f.proof.Cause, f.proof.Rule, f.at, Certain
	} else if f.at.Before(st.Onset) {
		old := st.Cause
		st.Cause, st.Rule, st.Onset = f.proof.Cause, f.proof.Rule, f.at
		st.addEffect(old)
	} else {
		st.addEffect(f.proof.Cause)
	}
	for _, e := range f.effects {
		st.addEffect(e)
	}
	st.Page = st.Page || f.page
}

func (st *State) addEffect(c Cause) {
	if c == "" || c == st.Cause || slices.Contains(st.Effects, c) {
		return
	}
	st.Effects = append(st.Effects, c)
	slices.Sort(st.Effects)
}

func (s *service) instanceText(i *instance, f finding) string {
	text := f.proof.Text
	if text == "" {
		text = string(f.proof.Cause)
	}
	if len(s.instances) > 1 {
		text = i.name + ": " + text
	}
	for _, e := range f.effects {
		if e == CausePortUnbound {
			for _, l := range i.listeners {
				if facts := l.cur.Finding.Listener; facts != nil && !facts.Listening {
					text += "; " + facts.Listener + " bound by nobody"
				}
			}
		}
	}
	return text
}

func (s *service) outsideText(p poll, now time.Time) string {
	for _, r := range s.refs(now) {
		if r.Side == Outside && r.Outcome == checks.Fail {
			return r.Detail
		}
	}
	return string(p.cause)
}

// tally counts the places that see a failure now, confirmed or not.
func (s *service) tally(st *State, now time.Time, places map[string]policy.Place) {
	failing, voting := map[string]bool{}, map[string]bool{}
	for _, o := range s.outside {
		for v, b := range o.ballots {
			if places[v.Place].Region != s.policy.Region || !valid(&b.cur, o.check, now) || b.cur.Finding.Outcome == checks.Blind {
				continue
			}
			voting[v.Place] = true
			if b.fails > 0 {
				failing[v.Place] = true
			}
		}
	}
	st.Tally = Tally{Failing: len(failing), Voting: len(voting), Configured: s.state.Tally.Configured}
}

// refs lists the evidence that is valid at now, inside first, in a fixed order.
func (s *service) refs(now time.Time) []Ref {
	var out []Ref
	for _, i := range s.instances {
		for _, group := range [][]*insideCheck{i.workers, i.listeners} {
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
	slices.SortFunc(out[inside:], func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Vantage, b.Vantage))
	})
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
		for _, c := range i.workers {
			consider(&c.cur, c.check)
		}
		for _, c := range i.listeners {
			consider(&c.cur, c.check)
		}
	}
	for _, o := range s.outside {
		for _, b := range o.ballots {
			consider(&b.cur, o.check)
		}
	}
	return next
}
