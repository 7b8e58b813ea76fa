package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
	"github.com/crosscheck-project/crosscheck/probe/wire"
)

// The wire knows no alerting type and the engine no NATS; here they meet.

// Results is the stream of evidence on the wire, as the engine wants it.
type Results struct{ Wire *wire.Client }

// Last implements engine.Results.
func (r Results) Last(ctx context.Context) (uint64, time.Time, error) { return r.Wire.LastResult(ctx) }

// Read implements engine.Results.
func (r Results) Read(ctx context.Context, since time.Time, fn func(engine.Message) error) error {
	return r.Wire.ReadResults(ctx, since, func(m wire.Message) error {
		return fn(engine.Message{Cursor: m.Seq, At: m.Stored, Place: m.Place, Vantage: m.Vantage, Kind: m.Kind, Body: m.Body})
	})
}

// Journal is the log of decisions on the wire, as the engine wants it.
type Journal struct {
	Wire *wire.Client
	// watch is told how appends go; may be nil.
	watch *storeWatch
}

// Append implements engine.Journal.
func (j Journal) Append(ctx context.Context, last uint64, kind string, body []byte) (uint64, error) {
	seq, err := j.Wire.Append(ctx, last, kind, body)
	if errors.Is(err, wire.ErrWrongLast) {
		err = fmt.Errorf("%w: %w", engine.ErrFenced, err)
	}
	if j.watch != nil {
		err = j.watch.note(err)
	}
	return seq, err
}

// Read implements engine.Journal.
func (j Journal) Read(ctx context.Context, after uint64, fn func(engine.Entry) error) (uint64, error) {
	return j.Wire.ReadJournal(ctx, after, func(e wire.Entry) error {
		return fn(engine.Entry{Seq: e.Seq, At: e.Stored, Kind: e.Kind, Body: e.Body})
	})
}

// askBody is a look on demand on the wire. Fields are only ever added.
type askBody struct {
	Check   string `json:"check"`
	Trigger string `json:"trigger"`
}

// Asker sends looks on demand to vantages over the wire.
type Asker struct{ Wire *wire.Client }

// Ask implements engine.Asker.
func (a Asker) Ask(place, vantageName, check, trigger string) error {
	body, err := json.Marshal(askBody{check, trigger})
	if err != nil {
		return err
	}
	return a.Wire.Ask(place, vantageName, body)
}

// asks listens for looks on demand. What does not fit the queue is dropped: the
// schedule goes on, and a full queue means that the vantage is busy looking.
func asks(w *wire.Client, v evidence.Vantage) (<-chan vantage.Ask, func(), error) {
	ch := make(chan vantage.Ask, 256)
	stop, err := w.Asks(v.Place, v.Name, func(body []byte) {
		var a askBody
		if json.Unmarshal(body, &a) != nil || a.Check == "" {
			return // not ours to judge: a newer core may ask in another way
		}
		select {
		case ch <- vantage.Ask{Check: a.Check, Trigger: a.Trigger}:
		default:
		}
	})
	return ch, stop, err
}

// publisher sends a vantage's batches over the wire.
type publisher struct {
	wire  *wire.Client
	from  evidence.Vantage
	watch *storeWatch
}

// Publish implements vantage.Publisher.
func (p publisher) Publish(ctx context.Context, kind checks.Kind, msgID string, body []byte) error {
	return p.watch.note(p.wire.Publish(ctx, p.from.Place, p.from.Name, string(kind), msgID, body))
}
