package evidence

import (
	"encoding/json"
	"fmt"
)

// Version is the batch format this code writes. It reads its own and the two
// around it: unknown fields are ignored, unknown words decode to blind.
const Version = 1

// MaxBatch is the most evidence one message carries.
const MaxBatch = 100

// Batch is the body of one message: evidence of one boot of one vantage.
type Batch struct {
	Version  int        `json:"version"`
	Boot     string     `json:"boot"`
	Evidence []Evidence `json:"evidence"`
}

// Encode returns the body of a message. It fails only on a batch that is empty,
// over MaxBatch, or has no boot: mistakes of the caller.
func Encode(b Batch) ([]byte, error) {
	if len(b.Evidence) == 0 || len(b.Evidence) > MaxBatch || b.Boot == "" {
		return nil, fmt.Errorf("encode batch: %d pieces of evidence (want 1 to %d), boot %q", len(b.Evidence), MaxBatch, b.Boot)
	}
	b.Version = Version
	return json.Marshal(b)
}

// Decode reads a message's body. The vantage is the one the subject named; what
// a body claims about its sender is not even read. Evidence without a check or
// a sequence is refused with the whole batch: a sender that writes it is broken.
func Decode(from Vantage, body []byte) ([]Evidence, error) {
	var b Batch
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, fmt.Errorf("decode batch from %s: %w", from, err)
	}
	if b.Version < 1 || b.Version > Version+1 {
		return nil, fmt.Errorf("decode batch from %s: version %d, this core reads 1 to %d", from, b.Version, Version+1)
	}
	if b.Boot == "" || len(b.Evidence) > MaxBatch {
		return nil, fmt.Errorf("decode batch from %s: boot %q, %d pieces of evidence (want at most %d)", from, b.Boot, len(b.Evidence), MaxBatch)
	}
	for i := range b.Evidence {
		e := &b.Evidence[i]
		if e.Check == "" || e.Seq == 0 {
			return nil, fmt.Errorf("decode batch from %s: evidence %d has check %q and sequence %d", from, i, e.Check, e.Seq)
		}
		e.Vantage, e.Boot = from, b.Boot
	}
	return b.Evidence, nil
}
