package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// evaluation is what is gathered while a service's instances are judged.
type evaluation struct {
	st      State
	public  poll
	texts   []string
	culprit *instance
	bad     int // instances degraded or down
	down    int
	leaving int // held back by an announced intent
	known   int // neither unknown
	lost    int // what was proven broken once and shows nothing now
	looked  int // outside checks that have a vote now
}

// evaluate is the verdict on the service at now (JUDGING section 5).
func (s *service) evaluate(now time.Time) State {
	s.expect(now)
	v := evaluation{st: State{Scope: s.state.Scope}, public: s.poll(s.public, now)}
	v.st.Scope.Instance = ""
	v.lost, v.looked = v.public.lost, v.public.voting
	for _, i := range s.instances {
		s.evaluateInstance(&v, i, now)
	}
	s.tally(&v.st, now)
	n := len(s.instances)
	public := &v.public
	if n > 0 && v.leaving == n && public.suspected {
		public.failing = 0 // an intent explains what one network suspects
	}
	st := &v.st
	switch {
	case v.bad > 0:
		st.Verdict = Degraded
		if v.down+v.leaving >= n || public.failing > 0 && public.failing == public.voting {
			st.Verdict = Down
		}
		if v.bad == 1 && n > 1 {
			st.Scope.Instance = v.culprit.name
		}
		if public.failing > 0 {
			st.addEffect(public.cause)
		}
		// A ticket's fault that customers see is a page.
		st.Page = st.Page || public.failing > 0 || st.Verdict == Down
		if text := s.fleetText(v.bad, now); text != "" {
			v.texts = append(v.texts, text)
		}
	case public.failing > 0:
		f := public.finding()
		if n == 1 {
			f.proof, f.text = s.instances[0].explainSlow(f.proof, f.text, now)
		}
		st.merge(f)
		st.Verdict = f.verdict
		v.texts = append(v.texts, f.text)
	case len(s.outside) > 0 && v.looked == 0:
		st.Verdict = Unknown // nobody could look from outside
	case v.lost > 0:
		st.Verdict = Unknown // somebody saw it broken and then fell silent: silence is never health
	case n > 0 && v.leaving == n && v.known == 0:
		st.Verdict = Unknown // every instance is on its way out, and would be broken otherwise
	case public.voting > 0 || n > 0 && v.known == n:
		st.Verdict = Up
	}
	if st.Verdict.Bad() {
		st.Sentence = sentence(st, v.texts)
	}
	return *st
}

// expect takes in the largest share of looks that any instance may cost by chance.
func (s *service) expect(now time.Time) {
	most, partial := 0.0, false
	for _, i := range s.instances {
		share, yes := i.partial(now)
		most, partial = max(most, share), partial || yes
	}
	s.doubts.expect(most, partial, now)
}

func (s *service) evaluateInstance(v *evaluation, i *instance, now time.Time) {
	pinned := s.poll(i.pinned, now)
	v.lost += pinned.lost
	v.looked += pinned.voting
	word := outsideWord{
		fails:  pinned.failing > 0,
		passes: pinned.voting > 0 && pinned.failing == 0,
		public: v.public.failing > 0 && !v.public.suspected,
	}
	if len(s.instances) == 1 { // the public name is its own
		word.fails = word.fails || v.public.failing > 0
		word.passes = pinned.voting+v.public.voting > 0 && !word.fails
	}
	if i.intruded(now) {
		fail, pass := lastLooks(i.pinned)
		publicFail, publicPass := lastLooks(s.public)
		word.lastFail, word.lastPass = later(fail, publicFail), later(pass, publicPass)
	}
	f := i.decide(now, word, s.policy.RestartGrace)
	v.lost += one(i.lost)
	if !f.verdict.Bad() && pinned.failing > 0 && !i.leaving {
		f = pinned.finding()
		f.proof, f.text = i.explainSlow(f.proof, f.text, now)
	}
	if f.verdict == Unknown && !i.leaving && pinned.voting > 0 && pinned.failing == 0 {
		f.verdict = Up
	}
	v.known += one(f.verdict != Unknown)
	v.down += one(f.verdict == Down)
	if f.verdict.Bad() {
		v.bad++
		v.culprit = i
		v.texts = append(v.texts, s.instanceText(i, f, now))
		v.st.merge(f)
		return
	}
	v.leaving += one(i.leaving)
}

// merge makes the earliest onset the cause, of equal ones the higher on the
// ladder, and the rest effects (JUDGING section 6). The certainty is the cause's.
func (st *State) merge(f finding) {
	old := st.Cause
	if old == "" || f.at.Before(st.Onset) || f.at.Equal(st.Onset) && f.proof.Cause.Rank() > old.Rank() {
		st.Cause, st.Because, st.Rule, st.Onset, st.Certainty = f.proof.Cause, f.proof.Because, f.proof.Rule, f.at, f.certain
		st.Effects = slices.DeleteFunc(st.Effects, func(c Cause) bool { return c == st.Cause })
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

// instanceText is what is broken about one instance, with its listeners: those
// that are gone too, or still bound though nobody serves.
func (s *service) instanceText(i *instance, f finding, now time.Time) string {
	text := cmp.Or(f.proof.Text, f.text, string(f.proof.Cause))
	if len(s.instances) > 1 {
		text = i.name + ": " + text
	}
	gone := slices.Contains(f.effects, CausePortUnbound)
	held := f.verdict == Down && slices.Contains(deceptive[:], f.proof.Cause)
	for _, l := range i.listeners {
		facts := l.cur.Finding.Listener
		switch {
		case !l.usable(now) || facts == nil:
		case gone && !facts.Listening:
			text += "; " + facts.Listener + " bound by nobody"
		case held && facts.Listening:
			text += "; " + facts.Listener + " still bound"
		}
	}
	return text
}

// deceptive are the causes with which a port stays bound and a simple check
// passes: the sentence says so.
var deceptive = [...]Cause{CauseWorkersDead, CauseWorkersCrashLooping, CauseWorkersFrozen, CauseWorkersSpinning, CauseMainFrozen}

// fleetText counts a service of several instances: bad over all, and the sum of
// workers that serve, as far as they are looked at (JUDGING section 5).
func (s *service) fleetText(bad int, now time.Time) string {
	if len(s.instances) < 2 {
		return ""
	}
	text := fmt.Sprintf("%d of %d instances bad", bad, len(s.instances))
	lost, all := 0, 0
	for _, i := range s.instances {
		for _, c := range i.workers {
			if w := c.cur.Finding.Workers; c.usable(now) && w != nil {
				n := max(w.Expected, w.Serving)
				well := max(0, w.Serving-spinners(w, spinDecided))
				all, lost = all+n, lost+n-well
			}
		}
	}
	if all > 0 {
		text += fmt.Sprintf(", %d of all %d workers", lost, all)
	}
	return text
}

// explainSlow adds to a failure seen from outside alone that the instance's host
// is starved by others, where the inside says so.
func (i *instance) explainSlow(p Proof, text string, now time.Time) (Proof, string) {
	for _, c := range i.workers {
		if w := c.cur.Finding.Workers; c.usable(now) && w != nil && starved(w.Host) {
			p.Because = CauseHostStarved
			return p, text + "; because " + starvedText(w.Host)
		}
	}
	return p, text
}
