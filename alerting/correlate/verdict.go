package correlate

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// Verdict is what is true of an instance or a service now. The zero value is
// Unknown: silence is never health.
type Verdict uint8

// The verdicts.
const (
	Unknown Verdict = iota
	Up
	Degraded
	Down
)

var verdictNames = [...]string{Unknown: "unknown", Up: "up", Degraded: "degraded", Down: "down"}

// String returns the lower-case word used in JSON, metrics and on the console.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Bad reports whether the verdict is one that opens an incident.
func (v Verdict) Bad() bool { return v == Degraded || v == Down }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A word it does not know
// becomes Unknown, never health.
func (v *Verdict) UnmarshalText(text []byte) error {
	*v = Unknown
	for i, name := range verdictNames {
		if name == string(text) {
			*v = Verdict(i)
		}
	}
	return nil
}

// Cause names what is wrong: one of the closed, append-only list of JUDGING
// section 6.
type Cause string

// The causes this judge can reach.
const (
	CauseMainDead            Cause = "main_dead"
	CauseMainCrashLooping    Cause = "main_crash_looping"
	CauseNeverReady          Cause = "never_ready"
	CauseWorkersDead         Cause = "workers_dead"
	CauseWorkersCrashLooping Cause = "workers_crash_looping"
	CauseWorkersFrozen       Cause = "workers_frozen"
	CauseMainFrozen          Cause = "main_frozen"
	CausePortUnbound         Cause = "port_unbound"
	CauseDNSFailing          Cause = "dns_failing"
	CauseConnectFailing      Cause = "connect_failing"
	CauseTLSFailing          Cause = "tls_failing"
	CauseHTTPFailing         Cause = "http_failing"

	CauseWorkersSpinning     Cause = "workers_spinning"
	CauseWorkersBelowMinimum Cause = "workers_below_minimum"
	CausePortStolen          Cause = "port_stolen"
	CauseAcceptQueueStuck    Cause = "accept_queue_stuck"
	CauseNoProgress          Cause = "no_progress"
	CauseFDExhausted         Cause = "fd_exhausted"
	CauseHeartbeatMissed     Cause = "heartbeat_missed"
	CauseStopped             Cause = "stopped"

	// These are "because" only (JUDGING section 6).
	CauseOOMKilled       Cause = "oom_killed"
	CauseHostStarved     Cause = "host_starved"
	CauseStaleGeneration Cause = "stale_generation"
)

// Rank orders causes by what can be the root of what (JUDGING section 6, the
// ladder): main, or whoever stopped it, above its workers and listeners, those
// above what they bring about, all above what is seen from outside. Causes of one
// rank are told apart by their onset alone.
func (c Cause) Rank() int {
	switch c {
	case CauseMainDead, CauseMainCrashLooping, CauseStopped:
		return 7
	case CauseMainFrozen:
		return 6
	case CauseWorkersDead, CauseWorkersCrashLooping, CauseWorkersFrozen, CauseWorkersSpinning, CausePortUnbound, CausePortStolen, CauseNeverReady:
		return 5
	case CauseFDExhausted:
		return 4
	case CauseWorkersBelowMinimum: // no stronger proof (P9), but too few may be why a queue stands
		return 3
	case CauseAcceptQueueStuck, CauseNoProgress, CauseHeartbeatMissed:
		return 2
	case CauseDNSFailing, CauseConnectFailing, CauseTLSFailing, CauseHTTPFailing:
		return 1
	}
	return 0
}

// Certainty says how sure a verdict is.
type Certainty string

// The certainties.
const (
	Certain   Certainty = "certain"
	Suspected Certainty = "suspected"
)

// Scope is what a verdict is about. Instance is empty if the service as a whole
// is meant.
type Scope struct {
	Service  string `json:"service"`
	Region   string `json:"region"`
	Instance string `json:"instance,omitempty"`
}

// String returns "service region" or "service region instance".
func (s Scope) String() string {
	if s.Instance == "" {
		return s.Service + " " + s.Region
	}
	return s.Service + " " + s.Region + " " + s.Instance
}

// Side says whether evidence was seen from outside or inside.
type Side string

// The sides.
const (
	Outside Side = "outside"
	Inside  Side = "inside"
)

// Ref is one piece of evidence as a verdict shows it.
type Ref struct {
	Side    Side           `json:"side"`
	Check   string         `json:"check"`
	Place   string         `json:"place"`
	Vantage string         `json:"vantage"`
	Boot    string         `json:"boot"`
	Seq     uint64         `json:"seq"`
	Outcome checks.Outcome `json:"outcome"`
	Reason  checks.Reason  `json:"reason,omitempty"`
	Detail  string         `json:"detail,omitempty"`
	At      time.Time      `json:"at"`
}

func refOf(side Side, s *evidence.Stored) Ref {
	return Ref{
		Side: side, Check: s.Check, Place: s.Vantage.Place, Vantage: s.Vantage.Name, Boot: s.Boot, Seq: s.Seq,
		Outcome: s.Finding.Outcome, Reason: s.Finding.Reason, Detail: s.Finding.Detail, At: s.LookTime(),
	}
}

// State is the verdict on one service with all that explains it.
type State struct {
	Verdict Verdict `json:"verdict"`
	Cause   Cause   `json:"cause,omitempty"`
	// Because is what brought the cause about, where that is known: oom_killed,
	// host_starved or stale_generation. The sentence says it in words.
	Because   Cause     `json:"because,omitempty"`
	Effects   []Cause   `json:"effects,omitempty"`
	Certainty Certainty `json:"certainty,omitempty"`
	Scope     Scope     `json:"scope"`
	// Rule is the rule of JUDGING.md that decided, for example "P1".
	Rule string `json:"rule,omitempty"`
	// Page says that the default policy wakes somebody: a proven broken
	// instance, or a service down (JUDGING section 5). Otherwise a ticket.
	Page bool `json:"page,omitempty"`
	// Since is when the verdict was first this one, on the core's clock.
	Since time.Time `json:"since,omitzero"`
	// Onset is when the first failing evidence was seen, on the core's clock.
	Onset time.Time `json:"onset,omitzero"`
	// Sentence is the page's sentence (JUDGING section 7).
	Sentence string `json:"sentence,omitempty"`
	// Evidence is what made the verdict: inside first, then outside.
	Evidence []Ref `json:"evidence,omitempty"`

	// Tally is how the outside votes.
	Tally Tally `json:"outside"`
}

// differs reports whether b tells a person something a does not. Counters that
// move (deaths so far, ages) do not count.
func (a *State) differs(b *State) bool {
	if a.Verdict != b.Verdict || a.Cause != b.Cause || a.Certainty != b.Certainty || a.Scope != b.Scope ||
		a.Rule != b.Rule || a.Page != b.Page || a.Because != b.Because || a.Tally != b.Tally || len(a.Effects) != len(b.Effects) {
		return true
	}
	for i := range a.Effects {
		if a.Effects[i] != b.Effects[i] {
			return true
		}
	}
	return false
}

// Change is one service's state becoming another.
type Change struct {
	At   time.Time `json:"at"`
	From Verdict   `json:"from"`
	To   State     `json:"to"`
}
