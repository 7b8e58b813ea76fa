package engine

import (
	"context"
	"errors"
	"time"
)

// Message is one stored batch of evidence. Place, Vantage and Kind come from
// its subject, which the server enforces.
type Message struct {
	Cursor               uint64
	At                   time.Time
	Place, Vantage, Kind string
	Body                 []byte
}

// Results is the stream of evidence.
type Results interface {
	// Last returns the position of the newest message and when it was stored;
	// zero values if there is none.
	Last(ctx context.Context) (cursor uint64, at time.Time, err error)
	// Read calls fn with every message stored at or after since, in order and
	// each once, and goes on with those that arrive, until ctx ends or fn
	// returns an error, which it returns. It survives a restart of the server.
	Read(ctx context.Context, since time.Time, fn func(Message) error) error
}

// Entry is one entry of the journal.
type Entry struct {
	Seq  uint64
	At   time.Time
	Kind string
	Body []byte
}

// ErrFenced says that another writer appended first: this one must stop.
var ErrFenced = errors.New("another writer appended to the journal")

// Journal is the log of decisions. What it acknowledged survives kill -9.
type Journal interface {
	// Append adds an entry if last is still the newest sequence (0 for an empty
	// journal), and returns the new one. Otherwise it returns an error that is
	// ErrFenced. Any other error leaves open whether the entry was added.
	Append(ctx context.Context, last uint64, kind string, body []byte) (uint64, error)
	// Read calls fn with every entry after seq, in order, up to the newest at
	// the time of the call, and returns the newest sequence.
	Read(ctx context.Context, after uint64, fn func(Entry) error) (last uint64, err error)
}

// Asker asks a vantage for a look now. It may be lost: the schedule goes on.
type Asker interface {
	Ask(place, vantage, check, trigger string) error
}
