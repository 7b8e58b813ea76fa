// Package incident turns changes of verdict into incidents and their steps. It
// does no I/O and reads no clock; ids are a function of the evidence, so that a
// replay gives the same ones.
package incident

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
)

// Severity is how an incident leaves the house.
type Severity string

// The severities. A page outranks a ticket; within an incident severity only
// rises.
const (
	Ticket Severity = "ticket"
	Page   Severity = "page"
)

// StepKind says what a step does to its incident.
type StepKind string

// The kinds of step.
const (
	Opened  StepKind = "opened"
	Updated StepKind = "updated"
	Closed  StepKind = "closed"
)

// Step is one entry of an incident's history. Incident and N identify it.
type Step struct {
	Incident string    `json:"incident"`
	N        uint64    `json:"n"`
	Kind     StepKind  `json:"kind"`
	At       time.Time `json:"at"`
	// OpenedAt is when the verdict that opened the incident was reached;
	// Onset when its first failing evidence was seen.
	OpenedAt time.Time `json:"opened_at"`
	Onset    time.Time `json:"onset"`
	// Cause is what the incident is put down to: that of its first proof, until
	// a clearer one is known. What is left when it is over does not replace it.
	Cause correlate.Cause `json:"cause"`
	// Severities are those that were raised so far, the ticket first.
	Severities []Severity `json:"severities"`
	// Reason says why this step was taken.
	Reason string          `json:"reason"`
	State  correlate.State `json:"state"`
}

// Incident is an open incident: its last step, and the countdown to closing.
type Incident struct {
	Last Step
	// GoodSince is since when the verdict has been up; zero while it is not.
	GoodSince time.Time
}

// Book holds the open incidents, one per (service, region). It is not safe for
// concurrent use.
type Book struct {
	closeAfter map[string]time.Duration
	regions    map[string]string // of the services in the policy
	refused    []string          // configured with a fault: nobody looks at them
	open       map[key]*Incident
}

type key struct{ service, region string }

func keyOf(s correlate.Scope) key { return key{s.Service, s.Region} }

// NewBook returns an empty book for a policy.
func NewBook(p policy.Policy) *Book {
	b := &Book{closeAfter: map[string]time.Duration{}, regions: map[string]string{}, refused: p.Refused, open: map[key]*Incident{}}
	for _, s := range p.Services {
		b.regions[s.Name] = s.Region
		b.closeAfter[s.Name] = s.CloseAfter
		if s.CloseAfter == 0 {
			b.closeAfter[s.Name] = policy.DefaultCloseAfter
		}
	}
	return b
}

// Fold takes in a step that was already recorded, at start.
func (b *Book) Fold(s Step) {
	if s.Kind == Closed {
		delete(b.open, keyOf(s.State.Scope))
		return
	}
	b.open[keyOf(s.State.Scope)] = &Incident{Last: s}
}

// Observe takes in a service's state at now and returns the steps it leads to.
// It looks at the state, not at the change alone, so telling it the same state
// twice, or the current one after a restart, is harmless.
func (b *Book) Observe(st correlate.State, now time.Time) []Step {
	k := keyOf(st.Scope)
	in := b.open[k]
	switch {
	case st.Verdict.Bad() && in == nil:
		return []Step{b.begin(k, st, now)}
	case st.Verdict.Bad():
		relapse := !in.GoodSince.IsZero()
		in.GoodSince = time.Time{}
		if reason := whyUpdate(&in.Last.State, &st, relapse); reason != "" {
			return []Step{in.update(st, now, reason)}
		}
	case in == nil:
	case st.Verdict == correlate.Up && in.GoodSince.IsZero():
		in.GoodSince = now
	case st.Verdict == correlate.Unknown:
		in.GoodSince = time.Time{} // silence is never health: the countdown begins anew
	}
	return nil
}

// Advance closes what has been good for long enough at now, each at its own
// deadline and in that order.
func (b *Book) Advance(now time.Time) []Step {
	var steps []Step
	for _, k := range b.keys() {
		due, ok := b.closesAt(k)
		if !ok || now.Before(due) {
			continue
		}
		in := b.open[k]
		steps = append(steps, b.end(k, due, correlate.Up, fmt.Sprintf("good for %s", b.closeAfter[k.service]),
			fmt.Sprintf("%s UP again since %s: it was %s for %s", in.Last.State.Scope, in.GoodSince.UTC().Format(time.TimeOnly),
				in.Last.Cause, in.GoodSince.Sub(in.Last.Onset).Round(100*time.Millisecond))))
	}
	slices.SortStableFunc(steps, func(x, y Step) int { return x.At.Compare(y.At) })
	return steps
}

// Retire closes the incidents of services that the policy no longer has: nobody
// looks at them, so nothing else ever would. A service that is refused for a
// fault in its configuration is still there, and its incident stays open.
func (b *Book) Retire(now time.Time) []Step {
	var steps []Step
	for _, k := range b.keys() {
		if region, ok := b.regions[k.service]; ok && region == k.region || slices.Contains(b.refused, k.service) {
			continue
		}
		steps = append(steps, b.end(k, now, correlate.Unknown, "no longer configured",
			fmt.Sprintf("%s is no longer watched: the configuration does not have it; it was %s", b.open[k].Last.State.Scope, b.open[k].Last.Cause)))
	}
	return steps
}

func (b *Book) end(k key, at time.Time, v correlate.Verdict, reason, sentence string) Step {
	s := b.open[k].Last
	s.N++
	s.Kind, s.At, s.Reason = Closed, at, reason
	s.State.Verdict, s.State.Sentence = v, sentence
	delete(b.open, k)
	return s
}

// NextDeadline is when Advance next closes an incident.
func (b *Book) NextDeadline() (next time.Time, ok bool) {
	for k := range b.open {
		if due, counting := b.closesAt(k); counting && (!ok || due.Before(next)) {
			next, ok = due, true
		}
	}
	return next, ok
}

// Open returns the last step of each open incident, ordered by service.
func (b *Book) Open() []Step {
	out := make([]Step, 0, len(b.open))
	for _, k := range b.keys() {
		out = append(out, b.open[k].Last)
	}
	return out
}

func (b *Book) closesAt(k key) (time.Time, bool) {
	in := b.open[k]
	if in.GoodSince.IsZero() {
		return time.Time{}, false
	}
	return in.GoodSince.Add(b.closeAfter[k.service]), true
}

func (b *Book) keys() []key {
	return slices.SortedFunc(maps.Keys(b.open), func(x, y key) int {
		return strings.Compare(x.service+"\x00"+x.region, y.service+"\x00"+y.region)
	})
}

func (b *Book) begin(k key, st correlate.State, now time.Time) Step {
	onset := st.Onset
	if onset.IsZero() || onset.After(now) {
		onset = now
	}
	s := Step{
		Incident: ID(st, onset), N: 1, Kind: Opened, At: now, OpenedAt: now, Onset: onset, Cause: st.Cause,
		Severities: []Severity{severityOf(&st)}, Reason: "first proof", State: st,
	}
	b.open[k] = &Incident{Last: s}
	return s
}

func (in *Incident) update(st correlate.State, now time.Time, reason string) Step {
	s := in.Last
	s.N++
	// What was an effect is no cause because it lasts longest; it is if it explains
	// the cause we had, which still holds.
	aftermath := slices.Contains(s.State.Effects, st.Cause) && !slices.Contains(st.Effects, s.Cause)
	if st.Cause != s.State.Cause && !aftermath && st.Cause.Rank() >= s.Cause.Rank() {
		s.Cause = st.Cause
	}
	s.Kind, s.At, s.Reason, s.State = Updated, now, reason, st
	if sev := severityOf(&st); !slices.Contains(s.Severities, sev) && sev == Page {
		s.Severities = append(slices.Clone(s.Severities), sev)
		s.Reason = "severity rose"
	}
	in.Last = s
	return s
}

func severityOf(st *correlate.State) Severity {
	if st.Page {
		return Page
	}
	return Ticket
}

// whyUpdate says what is new for a reader; empty if nothing is.
func whyUpdate(old, now *correlate.State, relapse bool) string {
	switch {
	case relapse:
		return "failing again before it closed"
	case old.Verdict != now.Verdict:
		return fmt.Sprintf("%s is now %s", old.Verdict, now.Verdict)
	case old.Cause != now.Cause && slices.Contains(old.Effects, now.Cause):
		return fmt.Sprintf("%s is over, %s remains", old.Cause, now.Cause)
	case old.Cause != now.Cause:
		return "the cause became clearer"
	case severityOf(old) != severityOf(now) && now.Page:
		return "severity rose"
	case old.Scope != now.Scope:
		return "the scope changed"
	case !slices.Equal(old.Effects, now.Effects), old.Certainty != now.Certainty, old.Rule != now.Rule, old.Because != now.Because:
		return "more is known"
	case (old.Tally.Failing == 0) != (now.Tally.Failing == 0):
		return "what customers see changed"
	}
	return ""
}

// ID is a function of what failed and of the first evidence that showed it:
// service, day and eight hexadecimal digits.
func ID(st correlate.State, onset time.Time) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", st.Scope.Service, st.Scope.Region, strconv.FormatInt(onset.UnixNano(), 10))
	for _, r := range st.Evidence {
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00%d\x00", r.Check, r.Vantage, r.Boot, r.Seq)
	}
	return fmt.Sprintf("%s-%s-%s", st.Scope.Service, onset.UTC().Format("20060102"), hex.EncodeToString(h.Sum(nil)[:4]))
}
