package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// The numbers of the outside vote.
const (
	// A place's fail counts once a second look confirmed it, this long after the
	// first. Chosen: longer than a server's own respawn of all its workers (the
	// lab's 100 ms and nginx's few; JUDGING section 3, "kill all once"), and
	// shorter than the first pause between looks on demand, so that the second
	// of them confirms whatever the jitter.
	confirmLooks = 2
	confirmSpan  = 900 * time.Millisecond
	// What failed while the inside saw what may be a restart must outlast it: the
	// default restart gap of JUDGING section 4.
	restartGap = 3 * time.Second
	// Closing wants 2 good rounds (JUDGING section 4).
	closeRounds = 2
	// With one network only: 3 failing looks over 5 s, suspected (JUDGING section 4).
	aloneLooks = 3
	aloneSpan  = 5 * time.Second
	// Certainty wants at least 2 networks (JUDGING section 4).
	minNetworks = 2
)

// The rules of the outside, beside those of the inside (P1, P2, ...).
const (
	ruleQuorum = "quorum"
	ruleAlone  = "alone"
)

// ballot is what one vantage has seen of one outside check.
type ballot struct {
	vantage evidence.Vantage
	place   int    // index of the place in its region; -1 if it has no vote here
	network string // of the place

	cur       evidence.Stored
	voted     time.Time // when it last looked and was not blind
	fails     int       // consecutive failing looks
	firstFail time.Time
	passes    int       // consecutive passing looks
	failBegan time.Time // when the newest that failed began
	passBegan time.Time // and the newest that passed
}

// observe takes in the vantage's newest look. A run of equal looks ends when the
// last of them is no longer evidence: two fails an hour apart confirm nothing.
func (b *ballot) observe(s *evidence.Stored, validity time.Duration) {
	b.cur = *s
	look := s.LookTime()
	if s.Finding.Outcome != checks.Blind {
		if look.Sub(b.voted) >= validity {
			b.fails, b.passes = 0, 0
		}
		b.voted = look
	}
	switch s.Finding.Outcome {
	case checks.Fail:
		if b.fails == 0 {
			b.firstFail = look
		}
		b.fails++
		b.passes = 0
		b.failBegan = look.Add(-s.Finding.Duration)
	case checks.Pass, checks.Warn:
		b.passes++
		b.fails = 0
		b.passBegan = look.Add(-s.Finding.Duration)
	case checks.Blind: // no vote, and no break in a run of votes
	}
}

// votes reports whether the ballot counts at now.
func (b *ballot) votes(c policy.Check, now time.Time) bool {
	return b.place >= 0 && b.cur.Finding.Outcome != checks.Blind && valid(&b.cur, c, now)
}

// failsFor reports a run of at least looks failing looks over at least span.
func (b *ballot) failsFor(looks int, span time.Duration) bool {
	return b.fails >= looks && b.cur.LookTime().Sub(b.firstFail) >= span
}

// outsideCheck is one outside check, looked at from every place.
type outsideCheck struct {
	check policy.Check
	// ballots are ordered by network, place and name, so that those of one
	// network and of one place stand together and everything said of them has one
	// order.
	ballots   []*ballot
	byVantage map[evidence.Vantage]*ballot
	// standing is the last decision: an even split, and a place that needs a
	// second look, leave it as it is.
	standing vote
	// doubt: something outside failed when an earlier judge ended, and nobody
	// has decided on this check since.
	doubt bool
}

func (o *outsideCheck) add(b *ballot) {
	o.byVantage[b.vantage] = b
	at, _ := slices.BinarySearchFunc(o.ballots, b, func(x, y *ballot) int {
		return cmp.Or(cmp.Compare(x.network, y.network), cmp.Compare(x.vantage.Place, y.vantage.Place), cmp.Compare(x.vantage.Name, y.vantage.Name))
	})
	o.ballots = slices.Insert(o.ballots, at, b)
}

// count is one count of votes. Places on one network share their way out, so a
// network has one vote: that of the majority of its places. Whether enough could
// look is counted in places.
type count struct {
	places int // configured in the region
	looked int // places that could look
	passed int // places that pass now
	votes
}

// votes are those of a group: vantages of a place, places of a network, or
// networks.
type votes struct {
	voted     int
	passed    int // pass now
	failed    int // fail now
	confirmed int // fail, and a second look says so too
	enduring  int // fail for long enough to be believed on one network
	settled   int // pass for two rounds
}

// add adds the vote of a group: what the majority of it says.
func (v *votes) add(group votes) {
	if group.voted == 0 {
		return
	}
	v.voted++
	v.passed += one(2*group.passed > group.voted)
	v.failed += one(2*group.failed > group.voted)
	v.confirmed += one(2*group.confirmed > group.voted)
	v.enduring += one(2*group.enduring > group.voted)
	v.settled += one(2*group.settled > group.voted)
}

// Tally is how the places vote on the outside checks of a service, reduced to
// what a person is told: of Configured places Voting could look, and Failing of
// those see a failure now, confirmed or not.
type Tally struct {
	Failing    int `json:"failing"`
	Voting     int `json:"voting"`
	Configured int `json:"configured"`
	// Since counts those of Voting that have looked since the onset.
	Since int `json:"since"`
}

func (t Tally) text(v Verdict) string {
	switch {
	case t.Voting == 0 && t.Configured == 0:
		return "No outside check is configured"
	case t.Voting == 0:
		return "No place could look from outside"
	case t.Failing == 0 && v.Bad() && t.Since == 0:
		return "No look from outside has ended since"
	case t.Failing == 0 && v.Bad():
		return fmt.Sprintf("From outside nobody sees it now (0 of %d places)", t.Since)
	case t.Failing == 0:
		return fmt.Sprintf("%d of %d places are served", t.Voting, t.Voting)
	default:
		return fmt.Sprintf("Customers see it (%d of %d places)", t.Failing, t.Voting)
	}
}

// count counts the votes that are evidence at now.
func (o *outsideCheck) count(now time.Time, places int, d doubts) count {
	c := count{places: places}
	for i := 0; i < len(o.ballots); {
		var network votes
		for first := i; i < len(o.ballots) && o.ballots[i].network == o.ballots[first].network; {
			var place votes
			for first := i; i < len(o.ballots) && o.ballots[i].vantage.Place == o.ballots[first].vantage.Place; i++ {
				if b := o.ballots[i]; b.votes(o.check, now) {
					place.voted++
					place.passed += one(b.passes > 0)
					place.failed += one(b.fails > 0)
					place.confirmed += one(b.confirmed(d))
					place.enduring += one(b.failsFor(max(aloneLooks, d.looks), aloneSpan))
					place.settled += one(b.passes >= closeRounds)
				}
			}
			c.looked += one(place.voted > 0)
			c.passed += one(2*place.passed > place.voted)
			network.add(place)
		}
		c.votes.add(network)
	}
	return c
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
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
// strict majority of those that could look, on at least two networks, else only
// suspected; at least half of the configured places, else unknown. An even split
// changes nothing. A check first passes by a majority of the voters, and half
// of the configured places: one more fail can never be what makes the quorum
// of a pass. While the inside explains that some looks fail, a fail that stands
// falls as soon as a majority passes.
func (o *outsideCheck) decide(c count, d doubts) vote {
	if c.looked == 0 || 2*c.looked < c.places {
		if o.standing == votePass {
			o.standing = voteUnknown
		}
		return voteUnknown
	}
	alone := c.voted < minNetworks
	switch {
	case !alone && 2*c.confirmed > c.voted, alone && 2*c.enduring > c.voted:
		o.standing = voteFail
	case o.standing == voteFail && (2*c.settled > c.voted || d.partial && 2*c.votes.passed > c.voted):
		o.standing = votePass
	case o.standing == voteUnknown && 2*c.votes.passed > c.voted && 2*c.passed >= c.places:
		o.standing = votePass
	}
	if o.standing == voteFail && alone {
		return voteFailSuspected
	}
	return o.standing
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
