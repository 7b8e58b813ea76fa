// Package memory is the in-memory twin of what the engine needs of the world:
// results, journal, asks. Tests run on it; nothing survives the process.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
)

// Results is a stream of evidence in memory. The zero value is empty.
type Results struct {
	// mu guards the fields below.
	mu       sync.Mutex
	messages []engine.Message
	more     chan struct{} // closed and renewed by every Publish
}

// Publish stores a message as of now and wakes the readers.
func (r *Results) Publish(place, vantage, kind string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, engine.Message{
		Cursor: uint64(len(r.messages) + 1), At: time.Now(), Place: place, Vantage: vantage, Kind: kind, Body: body,
	})
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// Last implements engine.Results.
func (r *Results) Last(context.Context) (uint64, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) == 0 {
		return 0, time.Time{}, nil
	}
	m := r.messages[len(r.messages)-1]
	return m.Cursor, m.At, nil
}

// Read implements engine.Results.
func (r *Results) Read(ctx context.Context, since time.Time, fn func(engine.Message) error) error {
	for next := 0; ; {
		m, more := r.at(next)
		if more != nil {
			select {
			case <-more:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		next++
		if m.At.Before(since) {
			continue
		}
		if err := fn(m); err != nil {
			return err
		}
	}
}

// at returns message i, or a channel that is closed when there may be one.
func (r *Results) at(i int) (engine.Message, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < len(r.messages) {
		return r.messages[i], nil
	}
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return engine.Message{}, r.more
}

// Journal is a log of decisions in memory. The zero value is empty.
type Journal struct {
	// mu guards the fields below.
	mu      sync.Mutex
	entries []engine.Entry
}

// Append implements engine.Journal.
func (j *Journal) Append(ctx context.Context, last uint64, kind string, body []byte) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if last != uint64(len(j.entries)) {
		return 0, engine.ErrFenced
	}
	seq := last + 1
	j.entries = append(j.entries, engine.Entry{Seq: seq, At: time.Now(), Kind: kind, Body: append([]byte(nil), body...)})
	return seq, nil
}

// Read implements engine.Journal.
func (j *Journal) Read(ctx context.Context, after uint64, fn func(engine.Entry) error) (uint64, error) {
	j.mu.Lock()
	entries := j.entries
	j.mu.Unlock()
	for _, e := range entries {
		if e.Seq <= after {
			continue
		}
		if err := fn(e); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return uint64(len(entries)), nil
}

// Asked is one look that was asked for.
type Asked struct{ Place, Vantage, Check, Trigger string }

// Asker remembers what was asked. The zero value remembers nothing yet.
type Asker struct {
	// mu guards the fields below.
	mu    sync.Mutex
	asked []Asked
}

// Ask implements engine.Asker.
func (a *Asker) Ask(place, vantage, check, trigger string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, Asked{place, vantage, check, trigger})
	return nil
}

// Asked returns everything asked so far.
func (a *Asker) Asked() []Asked {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Asked(nil), a.asked...)
}
