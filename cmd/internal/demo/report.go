package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
)

// stamp is a time in RFC 3339 with microseconds; the zero time is null.
type stamp struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	if s.IsZero() {
		return []byte("null"), nil
	}
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000000Z07:00"`)), nil
}

// Report is what one fault cycle showed.
type Report struct {
	Fault           string            `json:"fault"`
	Listener        string            `json:"listener"`
	RespawnPacingMS int64             `json:"respawn_pacing_ms"`
	InjectedAt      stamp             `json:"injected_at"`
	FirstEvidenceAt stamp             `json:"first_evidence_at"`
	VerdictAt       stamp             `json:"verdict_at"`
	PagedAt         stamp             `json:"paged_at"`
	TicketedAt      stamp             `json:"ticketed_at"`
	HealedAt        stamp             `json:"healed_at"`
	ResolvedAt      stamp             `json:"resolved_at"`
	Verdict         correlate.Verdict `json:"verdict"`
	Cause           correlate.Cause   `json:"cause"`
	Scope           correlate.Scope   `json:"scope"`
	Rule            string            `json:"rule"`
	Sentence        string            `json:"sentence"`
	// Told is the first page or ticket as it was received, Worker the process id
	// of the one worker that was broken, 0 if it was not one.
	Told           string          `json:"told"`
	Worker         int             `json:"worker,omitempty"`
	Pages          int             `json:"pages"`
	Resolves       int             `json:"resolves"`
	Tickets        int             `json:"tickets"`
	TicketResolves int             `json:"ticket_resolves"`
	Evidence       []correlate.Ref `json:"evidence"`
	expected       fault
}

// Check returns an error that says in what the cycle fell short of what the
// fault must lead to; nil if in nothing.
func (r *Report) Check() error {
	want, verdict := r.expected, r.expected.verdictOf(r.Listener)
	switch {
	case r.Verdict != verdict || r.Cause != want.cause:
		return fmt.Errorf("fault %s: verdict %s, cause %q; want %s, %q", r.Fault, r.Verdict, r.Cause, verdict, want.cause)
	case r.Pages != r.Resolves || r.Tickets != r.TicketResolves:
		return fmt.Errorf("fault %s: %d pages and %d resolves, %d tickets and %d resolves; want as many of each", r.Fault, r.Pages, r.Resolves, r.Tickets, r.TicketResolves)
	case !want.allows(r.Pages, r.Tickets):
		return fmt.Errorf("fault %s: %d pages and %d tickets; want %d and %d", r.Fault, r.Pages, r.Tickets, want.pages, want.tickets)
	case r.Worker != 0 && !slices.Contains(numbers(r.Told+" "+r.Sentence), strconv.Itoa(r.Worker)):
		return fmt.Errorf("fault %s: neither ticket nor incident names worker %d: %s", r.Fault, r.Worker, r.Sentence)
	}
	return nil
}

// numbers are the runs of digits in a text.
func numbers(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// write puts the report into a file, whole or not at all.
func (r *Report) write(path string) error {
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", append(body, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return os.Rename(path+".tmp", path)
}
