package correlate

import (
	"cmp"
	"slices"
	"time"
)

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
		v := o.decide(o.count(now, len(s.places), s.doubts), s.doubts)
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

// mark is what a place was found to do in one tally.
type mark uint8

const (
	markVotes mark = 1 << iota
	markFails
	markFresh
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
			if !b.cur.LookTime().Before(st.Onset) {
				s.marks[b.place] |= markFresh
			}
			if b.fails > 0 {
				s.marks[b.place] |= markFails
			}
		}
	}
	st.Tally.Configured = s.state.Tally.Configured
	for _, m := range s.marks {
		st.Tally.Voting += one(m&markVotes != 0)
		st.Tally.Failing += one(m&markFails != 0)
		st.Tally.Since += one(m&markFresh != 0)
	}
}
