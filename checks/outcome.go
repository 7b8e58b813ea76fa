package checks

import "fmt"

// Outcome is what one look concluded. The zero value is Blind: a look that
// never filled its finding in was not a look.
type Outcome uint8

// The outcomes, appended to and never reordered: they travel by name, but
// Severity compares them by value.
const (
	// Blind means we could not look: no rights, no network of our own, shutting
	// down, a bug of ours. It is never evidence against a target, never a vote.
	Blind Outcome = iota
	// Pass means every expectation was met.
	Pass
	// Warn means the target serves, but something is not as it should be.
	Warn
	// Fail means an expectation was not met.
	Fail
)

var outcomeNames = [...]string{Blind: "blind", Pass: "pass", Warn: "warn", Fail: "fail"}

// String returns the lower-case word used in JSON, metrics and on the console.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A word it does not know
// (a newer version's, or damage) becomes Blind, never health.
func (o *Outcome) UnmarshalText(text []byte) error {
	*o = Blind
	for i, name := range outcomeNames {
		if name == string(text) {
			*o = Outcome(i)
		}
	}
	return nil
}
