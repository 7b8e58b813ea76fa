package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/incident"
)

// takeOver folds the journal and appends an epoch, which fences every earlier
// writer.
func (e *Engine) takeOver(ctx context.Context) error {
	for {
		last, err := e.deps.Journal.Read(ctx, e.last, e.fold)
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		e.last = last
		err = e.append(ctx, kindEpoch, record{})
		if !errors.Is(err, ErrFenced) {
			return err
		}
		// Somebody appended between our read and our epoch: read on. At start
		// that is a predecessor's last word, not yet a fence.
	}
}

func (e *Engine) fold(entry Entry) error {
	r, err := decodeRecord(entry)
	if err != nil {
		return err
	}
	for _, s := range r.Steps {
		e.book.Fold(s)
		e.remember(s)
		if s.Kind == incident.Closed && e.startAt.Sub(s.At) < resolveFor {
			notices := e.notices(s, "re-posted after a restart of the core")
			e.owed[notices[0].Key()] = notices
		}
	}
	for _, d := range r.Done {
		delete(e.owed, d.Key)
	}
	return nil
}

// recordDone journals that receivers accepted notices: this one and those that
// wait behind it, in one append.
func (e *Engine) recordDone(ctx context.Context, first done) error {
	all := []done{first}
	for len(all) < cap(e.accepted) {
		select {
		case d := <-e.accepted:
			all = append(all, d)
			continue
		default:
		}
		break
	}
	for _, d := range all {
		delete(e.owed, d.Key)
	}
	return e.append(ctx, kindDone, record{Done: all})
}

// The pauses between tries of an append (chosen: a restart of the hub takes
// about a second; nothing can be told before it is recorded).
const (
	appendTimeout  = 5 * time.Second
	appendPause    = 50 * time.Millisecond
	appendMaxPause = time.Second
)

// append adds an entry behind the newest and retries until it is in the journal
// once, the fence holds, or ctx ends.
func (e *Engine) append(ctx context.Context, kind string, r record) error {
	e.appends++
	r.Version, r.Writer, r.N = recordVersion, e.writer, e.appends
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode journal entry: %w", err)
	}
	unsure := false
	for pause := appendPause; ; pause = min(2*pause, appendMaxPause) {
		try, cancel := context.WithTimeout(ctx, appendTimeout)
		seq, err := e.deps.Journal.Append(try, e.last, kind, body)
		cancel()
		switch {
		case err == nil:
			e.last = seq
			return nil
		case errors.Is(err, ErrFenced) && unsure:
			return e.findOwn(ctx, r.N)
		case errors.Is(err, ErrFenced):
			return fmt.Errorf("append to the journal after %d: %w", e.last, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		unsure = true
		e.stats.appendErrors.Add(1)
		e.deps.Log.Error("append to the journal; trying again", "after", e.last, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// findOwn looks whether an append whose answer was lost is in the journal.
func (e *Engine) findOwn(ctx context.Context, n uint64) error {
	found := uint64(0)
	last, err := e.deps.Journal.Read(ctx, e.last, func(entry Entry) error {
		r, err := decodeRecord(entry)
		if err == nil && r.Writer == e.writer && r.N == n {
			found = entry.Seq
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if found == 0 || found != last {
		return fmt.Errorf("append to the journal after %d: %w", e.last, ErrFenced)
	}
	e.last = last
	return nil
}
