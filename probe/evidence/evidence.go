// Package evidence is the record of what a vantage saw, its identity, and its
// codec. It decides nothing and touches nothing: a leaf both the vantages and
// the core import.
package evidence

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// VantageKind says whether a vantage looks from outside or inside.
type VantageKind string

// The vantage kinds.
const (
	Prober VantageKind = "prober"
	Agent  VantageKind = "agent"
)

// Vantage names the source of evidence. On the wire it comes from the subject,
// which the server enforces, never from the body.
type Vantage struct {
	Place string `json:"place"`
	Name  string `json:"name"`
}

// String returns "place/name".
func (v Vantage) String() string { return v.Place + "/" + v.Name }

// Evidence is one finding with its identity: check, vantage, boot,
// sequence. The check's id names service and target; policy says which.
type Evidence struct {
	Check   string      `json:"check"`
	Kind    checks.Kind `json:"kind"`
	Vantage Vantage     `json:"-"`
	// Boot is an unguessable nonce of the vantage's process; Seq counts the
	// evidence of that boot from 1. The highest is current.
	Boot string `json:"-"`
	Seq  uint64 `json:"seq"`
	// Slot is the scheduled time of the look, zero for one that was not
	// scheduled. It is an attribute, not part of the identity.
	Slot time.Time `json:"slot,omitzero"`
	// Trigger is what asked for an unscheduled look; empty if scheduled.
	Trigger string `json:"trigger,omitempty"`
	// Waited is how long the finding lay at the vantage before it was sent, on
	// the monotonic clock: look time = stored - waited.
	Waited  time.Duration  `json:"waited_ns"`
	Finding checks.Finding `json:"finding"`
}

// Stored is evidence as the core received it.
type Stored struct {
	Evidence
	// At is when the core stored the message that carried it.
	At time.Time
	// Cursor is the position of that message in the stream.
	Cursor uint64
}

// LookTime is when the look ended, on the core's clock.
func (s *Stored) LookTime() time.Time {
	if s.Waited <= 0 {
		return s.At
	}
	return s.At.Add(-s.Waited)
}
