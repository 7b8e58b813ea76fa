package correlate

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// The numbers of the outside vote.
const (
	// A place's fail counts once a second look confirmed it, a second or more
	// after the first (chosen: longer than a server's own respawn of all its
	// workers, the lab's 100 ms and nginx's few; JUDGING section 3, "kill all once").
	confirmLooks = 2
	confirmSpan  = time.Second
	// Closing wants 2 good rounds (JUDGING section 4).
	closeRounds = 2
	// With one network only: 3 failing looks over 5 s, suspected (JUDGING section 4).
	aloneLooks = 3
	aloneSpan  = 5 * time.Second
	// minNetworks is how many networks certainty needs (JUDGING section 4).
	minNetworks = 2
)

// ballot is what one vantage has seen of one outside check.
type ballot struct {
	cur       evidence.Stored
	fails     int // consecutive failing looks
	firstFail time.Time
	passes    int // consecutive passing looks
}

func (b *ballot) observe(s *evidence.Stored) {
	b.cur = *s
	switch s.Finding.Outcome {
	case checks.Fail:
		if b.fails == 0 {
			b.firstFail = s.LookTime()
		}
		b.fails++
		b.passes = 0
	case checks.Pass, checks.Warn:
		b.passes++
		b.fails = 0
	case checks.Blind: // no vote, and no break in a run of votes
	}
}

// outsideCheck is one outside check, looked at from every place.
type outsideCheck struct {
	check   policy.Check
	ballots map[evidence.Vantage]*ballot
	failing bool // the standing decision; an even split leaves it as it is
}

// count is one tally of votes.
type count struct {
	voted, failed, confirmed, settled, networks, places int
	longestFails                                        int
	failingFor                                          time.Duration
}

// Tally is how the places vote on the outside checks of a service, reduced to
// what a person is told: of Configured places Voting could look, and Failing of
// those see a failure now, confirmed or not.
type Tally struct {
	Failing    int `json:"failing"`
	Voting     int `json:"voting"`
	Configured int `json:"configured"`
}

func (t Tally) text(v Verdict) string {
	switch {
	case t.Voting == 0 && t.Configured == 0:
		return "No outside check is configured"
	case t.Voting == 0:
		return "No place could look from outside"
	case t.Failing == 0 && v.Bad():
		return fmt.Sprintf("Customers do not see it yet (0 of %d places)", t.Voting)
	case t.Failing == 0:
		return fmt.Sprintf("%d of %d places are served", t.Voting, t.Voting)
	default:
		return fmt.Sprintf("Customers see it (%d of %d places)", t.Failing, t.Voting)
	}
}

// count counts the votes of places that are evidence at now. A place votes by
// the majority of its vantages; with one vantage, by that one.
func (o *outsideCheck) count(now time.Time, places map[string]policy.Place, region string) count {
	type placeVote struct{ voted, failed, confirmed, settled int }
	byPlace := map[string]*placeVote{}
	var c count
	for _, p := range places {
		if p.Region == region {
			c.places++
		}
	}
	for v, b := range o.ballots {
		place, ok := places[v.Place]
		if !ok || place.Region != region || !valid(&b.cur, o.check, now) || b.cur.Finding.Outcome == checks.Blind {
			continue
		}
		pv := byPlace[v.Place]
		if pv == nil {
			pv = &placeVote{}
			byPlace[v.Place] = pv
		}
		pv.voted++
		if b.fails > 0 {
			pv.failed++
			c.longestFails = max(c.longestFails, b.fails)
			span := b.cur.LookTime().Sub(b.firstFail)
			c.failingFor = max(c.failingFor, span)
			if b.fails >= confirmLooks && span >= confirmSpan {
				pv.confirmed++
			}
		}
		if b.passes >= closeRounds {
			pv.settled++
		}
	}
	networks := map[string]bool{}
	for name, pv := range byPlace {
		c.voted++
		networks[places[name].Network] = true
		if 2*pv.failed > pv.voted {
			c.failed++
		}
		if 2*pv.confirmed > pv.voted {
			c.confirmed++
		}
		if 2*pv.settled > pv.voted {
			c.settled++
		}
	}
	c.networks = len(networks)
	return c
}

// vote is what the outside says of a check.
type vote uint8

const (
	voteUnknown vote = iota
	votePass
	voteFail
	voteFailSuspected
)

// decide is the outside's total decision on one check (JUDGING section 4): a
// strict majority of the places that could look; at least two networks, else
// only suspected; at least half of the configured places, else unknown. An even
// split changes nothing.
func (o *outsideCheck) decide(c count) vote {
	alone := c.networks < minNetworks
	switch {
	case c.voted == 0 || 2*c.voted < c.places:
		return voteUnknown
	case !alone && 2*c.confirmed > c.voted:
		o.failing = true
	case alone && 2*c.failed > c.voted && c.longestFails >= aloneLooks && c.failingFor >= aloneSpan:
		o.failing = true
	case o.failing && 2*c.settled > c.voted:
		o.failing = false
	}
	switch {
	case o.failing && alone:
		return voteFailSuspected
	case o.failing:
		return voteFail
	default:
		return votePass
	}
}

// outsideCause names the cause by the reason most looks failed with.
func outsideCause(reason checks.Reason) Cause {
	switch reason {
	case checks.ReasonResolveFailed:
		return CauseDNSFailing
	case checks.ReasonConnectRefused, checks.ReasonConnectTimeout, checks.ReasonConnectFailed:
		return CauseConnectFailing
	case checks.ReasonTLSFailed:
		return CauseTLSFailing
	default:
		return CauseHTTPFailing
	}
}

// valid reports whether evidence is still evidence (JUDGING section 2).
func valid(s *evidence.Stored, c policy.Check, now time.Time) bool {
	return s.Seq != 0 && now.Before(s.LookTime().Add(c.Validity()))
}
