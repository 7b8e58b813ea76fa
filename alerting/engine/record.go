package engine

import (
	"encoding/json"
	"fmt"

	"github.com/crosscheck-project/crosscheck/alerting/incident"
)

// recordVersion is the journal format this code writes. It reads its own and
// the next: unknown fields are ignored.
const recordVersion = 1

// The kinds of journal entry.
const (
	kindEpoch = "epoch" // a writer took over; fences every earlier one
	kindSteps = "steps" // the steps of one judge step
	kindDone  = "done"  // receivers accepted notices
)

// record is the body of every journal entry.
type record struct {
	Version int `json:"version"`
	// Writer and N identify the append, so that one whose answer was lost is
	// recognised as our own.
	Writer string          `json:"writer"`
	N      uint64          `json:"n"`
	Steps  []incident.Step `json:"steps,omitempty"`
	Done   []done          `json:"done,omitempty"`
}

// done says that a receiver accepted the notice with this key.
type done struct {
	Key      string `json:"key"`
	Receiver string `json:"receiver"`
}

func decodeRecord(e Entry) (record, error) {
	var r record
	if err := json.Unmarshal(e.Body, &r); err != nil {
		return record{}, fmt.Errorf("journal entry %d (%s): %w", e.Seq, e.Kind, err)
	}
	if r.Version < 1 || r.Version > recordVersion+1 {
		return record{}, fmt.Errorf("journal entry %d (%s): version %d, this core reads 1 to %d", e.Seq, e.Kind, r.Version, recordVersion+1)
	}
	return r, nil
}
