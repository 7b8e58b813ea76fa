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
	// restarting is when the inside last saw what may be a restart of workers.
	restarting time.Time

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
			if c.Kind == checks.KindWorkers {
				owner.workers = append(owner.workers, in)
			} else {
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

// poll is the outside's word on a group of checks.
type poll struct {
	failing, voting int
	lost            int  // failed when last decided, and too few places look now
	suspected       bool // every failing one is only suspected
	cause           Cause
	onset           time.Time
	text            string
}

func (s *service) poll(group []*outsideCheck, now time.Time) poll {
	p := poll{suspected: true}
	for _, o := range group {
		v := o.decide(o.count(now, len(s.places), s.restarting))
		if v == voteUnknown {
			p.lost += one(o.standing == voteFail || o.doubt)
			continue
		}
		o.doubt = false
		p.voting++
		if v == votePass {
			continue
		}
		p.failing++
		p.suspected = p.suspected && v == voteFailSuspected
		onset, cause, text := o.firstFail(now)
		if p.onset.IsZero() || onset.Before(p.onset) {
			p.onset, p.cause, p.text = onset, cause, text
		}
	}
	p.suspected = p.suspected && p.failing > 0
	return p
}

// firstFail is when the standing run of failures began, the cause that most of
// those who see it name, and the words of one of these.
func (o *outsideCheck) firstFail(now time.Time) (onset time.Time, cause Cause, text string) {
	order := [...]Cause{CauseHTTPFailing, CauseTLSFailing, CauseConnectFailing, CauseDNSFailing}
	var votes [len(order)]int
	var texts [len(order)]string
	for _, b := range o.ballots {
		if b.fails == 0 || !b.votes(o.check, now) {
			continue
		}
		if onset.IsZero() || b.firstFail.Before(onset) {
			onset = b.firstFail
		}
		k := slices.Index(order[:], outsideCause(b.cur.Finding.Reason))
		votes[k]++
		texts[k] = cmp.Or(texts[k], b.cur.Finding.Detail)
	}
	if onset.IsZero() {
		onset = now
	}
	best := 0
	for k := range order {
		if votes[k] > votes[best] {
			best = k
		}
	}
	return onset, order[best], cmp.Or(texts[best], string(order[best]))
}

// evaluate is the verdict on the service at now (JUDGING section 5).
func (s *service) evaluate(now time.Time) State {
	public := s.poll(s.public, now)
	st := State{Scope: s.state.Scope}
	st.Scope.Instance = ""
	var texts []string
	var culprit *instance
	bad, down, known, lost, looked := 0, 0, 0, public.lost, public.voting
	for _, i := range s.instances {
		pinned := s.poll(i.pinned, now)
		lost += pinned.lost
		looked += pinned.voting
		fails := pinned.failing > 0 || len(s.instances) == 1 && public.failing > 0
		f := i.decide(now, fails, s.policy.RestartGrace)
		lost += one(i.lost)
		if !f.verdict.Bad() && pinned.failing > 0 {
			f = pinned.finding()
		}
		if f.verdict == Unknown && pinned.voting > 0 && pinned.failing == 0 {
			f.verdict = Up
		}
		known += one(f.verdict != Unknown)
		down += one(f.verdict == Down)
		if f.verdict.Bad() {
			bad++
			culprit = i
			texts = append(texts, s.instanceText(i, f, now))
			st.merge(f)
		}
	}
	s.tally(&st, now)
	allFail := public.failing > 0 && public.failing == public.voting
	switch {
	case bad > 0:
		st.Verdict = Degraded
		if down == len(s.instances) || allFail {
			st.Verdict = Down
		}
		if bad == 1 && len(s.instances) > 1 {
			st.Scope.Instance = culprit.name
		}
		if public.failing > 0 {
			st.addEffect(public.cause)
		}
		// A ticket's fault that customers see is a page.
		st.Page = st.Page || public.failing > 0 || st.Verdict == Down
	case public.failing > 0:
		f := public.finding()
		st.merge(f)
		st.Verdict = f.verdict
		texts = append(texts, public.text)
	case len(s.outside) > 0 && looked == 0:
		st.Verdict = Unknown // nobody could look from outside
	case lost > 0:
		st.Verdict = Unknown // somebody saw it broken and then fell silent: silence is never health
	case public.voting > 0 || len(s.instances) > 0 && known == len(s.instances):
		st.Verdict = Up
	}
	if st.Verdict.Bad() {
		st.Sentence = sentence(&st, texts)
	}
	return st
}

// finding is what a failing poll says of what it was pinned to.
func (p *poll) finding() finding {
	f := finding{verdict: Degraded, proof: Proof{Rule: ruleQuorum, Cause: p.cause}, at: p.onset, page: true, text: p.text, certain: Certain}
	if p.failing == p.voting {
		f.verdict = Down
	}
	if p.suspected {
		f.proof.Rule, f.certain = ruleAlone, Suspected
	}
	return f
}

// merge makes the earliest onset the cause and the rest effects (JUDGING
// section 6). The certainty is the cause's.
func (st *State) merge(f finding) {
	old := st.Cause
	if old == "" || f.at.Before(st.Onset) {
		st.Cause, st.Rule, st.Onset, st.Certainty = f.proof.Cause, f.proof.Rule, f.at, f.certain
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

func (s *service) instanceText(i *instance, f finding, now time.Time) string {
	text := cmp.Or(f.proof.Text, f.text, string(f.proof.Cause))
	if len(s.instances) > 1 {
		text = i.name + ": " + text
	}
	if slices.Contains(f.effects, CausePortUnbound) {
		for _, l := range i.listeners {
			if facts := l.cur.Finding.Listener; l.usable(now) && facts != nil && !facts.Listening {
				text += "; " + facts.Listener + " bound by nobody"
			}
		}
	}
	return text
}

// mark is what a place was found to do in one tally.
type mark uint8

const (
	markVotes mark = 1 << iota
	markFails
)

// tally counts the places that see a failure now, confirmed or not.
func (s *service) tally(st *State, now time.Time) {
	clear(s.marks)
	for _, o := range s.outside {
		for _, b := range o.ballots {
			if !b.votes(o.check, now) {
				continue
			}
			s.marks[b.place] |= markVotes
			if b.fails > 0 {
				s.marks[b.place] |= markFails
			}
		}
	}
	st.Tally.Configured = s.state.Tally.Configured
	for _, m := range s.marks {
		st.Tally.Voting += one(m&markVotes != 0)
		st.Tally.Failing += one(m&markFails != 0)
	}
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
