// Package notify carries incident states out of the house: one queue for each
// receiver, retries with back-off, and the news that a receiver has accepted.
// It decides neither what is worth telling nor to whom; it only delivers.
package notify

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// The two severities that leave the house.
const (
	SeverityPage   = "page"
	SeverityTicket = "ticket"
)

// Notice is what leaves the house for one incident state. All of it is plain
// text, so that a receiver needs nothing of the judge's vocabulary.
type Notice struct {
	// Incident and Severity name the alert; a later Notice with the same two
	// replaces an earlier one.
	Incident string
	Severity string // SeverityPage or SeverityTicket
	// Step orders the states of one incident.
	Step    uint64
	Service string
	// Firing is false once the incident is over.
	Firing   bool
	StartsAt time.Time
	// EndsAt is zero while firing.
	EndsAt time.Time

	Verdict string
	Cause   string
	Scope   string
	// Summary is the page's sentence.
	Summary string
	// Detail is the evidence, outside and inside side by side.
	Detail string
	// Reason says why this notification is sent.
	Reason     string
	Runbook    string
	ConsoleURL string

	// First is true only when this is the first Notice of its incident and
	// severity and the engine posts it in the very life in which it made it:
	// nobody can have heard of it yet. A resolve that meets such a Notice still
	// untried in a queue cancels both. False is always safe.
	First bool
}

// Key is "incident/step", the name under which a delivery is journalled.
func (n Notice) Key() string { return n.Incident + "/" + strconv.FormatUint(n.Step, 10) }

// Notifier hands notices to one receiver.
type Notifier interface {
	// Name is short and constant; it is the receiver's name in the journal.
	Name() string
	// Notify hands one notice over. Nil means that the receiver has accepted
	// it: it will not be sent again. An error means that it may not have
	// arrived: it will be sent again, so a receiver must bear the same notice
	// twice. An error wrapped by Permanent means that the receiver will never
	// accept this notice: it becomes a dead letter.
	//
	// Notify returns when ctx ends at the latest. A Loop never calls it twice
	// at the same time.
	Notify(ctx context.Context, n Notice) error
}

// permanentError marks an error that a retry cannot mend.
type permanentError struct{ err error }

func (e permanentError) Error() string { return e.err.Error() }
func (e permanentError) Unwrap() error { return e.err }

// Permanent marks err as one that sending again cannot mend. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}
