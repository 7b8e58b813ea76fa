// Package enginetest holds what every implementation of the engine's ports must
// do: one contract, run for the in-memory twin beside it and for the real one
// where it is composed.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
)

// patience bounds every wait (chosen: a real hub under the race detector on a
// loaded machine answers in well under a second).
const patience = 20 * time.Second

// bounded returns a context that ends with the test, or when patience does.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

type entry struct {
	Seq  uint64
	Kind string
	Body string
}

func read(t *testing.T, j engine.Journal, after uint64) (entries []entry, last uint64) {
	t.Helper()
	last, err := j.Read(bounded(t), after, func(e engine.Entry) error {
		if e.At.IsZero() {
			t.Errorf("entry %d: its time is zero", e.Seq)
		}
		entries = append(entries, entry{e.Seq, e.Kind, string(e.Body)})
		return nil
	})
	if err != nil {
		t.Fatalf("Read after %d: %v", after, err)
	}
	return entries, last
}

func add(t *testing.T, j engine.Journal, last uint64, kind, body string) uint64 {
	t.Helper()
	seq, err := j.Append(bounded(t), last, kind, []byte(body))
	if err != nil {
		t.Fatalf("Append after %d: %v", last, err)
	}
	if seq <= last {
		t.Fatalf("Append after %d: got sequence %d, want a greater one", last, seq)
	}
	return seq
}

// Journal checks an implementation of engine.Journal. Each call of open returns
// a journal over the same store, which is empty at the first call of a subtest:
// open makes a store when it sees a t it has not seen, and opens it again
// otherwise.
func Journal(t *testing.T, open func(t *testing.T) engine.Journal) {
	t.Run("an empty journal ends at 0", func(t *testing.T) {
		entries, last := read(t, open(t), 0)
		if len(entries) != 0 || last != 0 {
			t.Errorf("Read: got %v up to %d, want nothing up to 0", entries, last)
		}
	})
	t.Run("what was appended is read in order, and after a sequence only the rest", func(t *testing.T) {
		j := open(t)
		first := add(t, j, 0, "epoch", "one")
		second := add(t, j, first, "steps", "two\x00\xff")
		third := add(t, j, second, "done", "")
		want := []entry{{first, "epoch", "one"}, {second, "steps", "two\x00\xff"}, {third, "done", ""}}
		for after, rest := range map[uint64][]entry{0: want, first: want[1:], second: want[2:], third: nil} {
			got, last := read(t, j, after)
			if diff := cmp.Diff(rest, got); diff != "" || last != third {
				t.Errorf("Read after %d: up to %d, want %d (-want +got):\n%s", after, last, third, diff)
			}
		}
	})
	t.Run("what was appended is there when the store is opened again, and the fence too", func(t *testing.T) {
		first := add(t, open(t), 0, "epoch", "one")
		again := open(t)
		if got, last := read(t, again, 0); len(got) != 1 || last != first {
			t.Fatalf("Read: got %v up to %d, want one entry up to %d", got, last, first)
		}
		if _, err := again.Append(bounded(t), 0, "epoch", []byte("late")); !errors.Is(err, engine.ErrFenced) {
			t.Errorf("Append after 0: got %v, want ErrFenced", err)
		}
		add(t, again, first, "epoch", "two")
	})
	t.Run("a wrong last sequence is fenced and adds nothing", func(t *testing.T) {
		j := open(t)
		if _, err := j.Append(bounded(t), 7, "epoch", []byte("ahead")); !errors.Is(err, engine.ErrFenced) {
			t.Errorf("Append after 7 to an empty journal: got %v, want ErrFenced", err)
		}
		first := add(t, j, 0, "epoch", "one")
		second := add(t, j, first, "epoch", "two")
		for _, last := range []uint64{0, first, second + 1} {
			if _, err := j.Append(bounded(t), last, "steps", []byte("wrong")); !errors.Is(err, engine.ErrFenced) {
				t.Errorf("Append after %d: got %v, want ErrFenced", last, err)
			}
		}
		if got, last := read(t, j, 0); len(got) != 2 || last != second {
			t.Errorf("Read: got %v up to %d, want the two entries up to %d", got, last, second)
		}
	})
	t.Run("of writers at the same place one wins", func(t *testing.T) {
		const writers = 8
		journals := make([]engine.Journal, writers)
		for i := range journals {
			journals[i] = open(t)
		}
		ctx := bounded(t)
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for i, j := range journals {
			wg.Go(func() { _, errs[i] = j.Append(ctx, 0, "epoch", fmt.Append(nil, i)) })
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, engine.ErrFenced):
				t.Errorf("writer %d: got %v, want nil or ErrFenced", i, err)
			}
		}
		if got, _ := read(t, journals[0], 0); won != 1 || len(got) != 1 {
			t.Errorf("%d writers won and %d entries are there, want 1 and 1", won, len(got))
		}
	})
	t.Run("a reader that has enough ends the reading", func(t *testing.T) {
		j := open(t)
		add(t, j, add(t, j, 0, "epoch", "one"), "epoch", "two")
		enough, calls := errors.New("enough"), 0
		if _, err := j.Read(bounded(t), 0, func(engine.Entry) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
			t.Errorf("Read: got %v after %d calls, want %v after 1", err, calls, enough)
		}
	})
	t.Run("a context that has ended ends an append", func(t *testing.T) {
		j := open(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := j.Append(ended, 0, "epoch", []byte("x")); err == nil || errors.Is(err, engine.ErrFenced) {
			t.Errorf("Append: got %v, want an error that is not ErrFenced", err)
		}
	})
}

// Publisher stores a message as a vantage would.
type Publisher func(ctx context.Context, place, vantage, kind string, body []byte) error

type message struct{ Place, Vantage, Kind, Body string }

// Results checks an implementation of engine.Results. open is as for Journal; it
// also returns a way to publish to the same store.
func Results(t *testing.T, open func(t *testing.T) (engine.Results, Publisher)) {
	publish := func(t *testing.T, p Publisher, m message) {
		t.Helper()
		if err := p(bounded(t), m.Place, m.Vantage, m.Kind, []byte(m.Body)); err != nil {
			t.Fatalf("publish %v: %v", m, err)
		}
	}
	messages := []message{{"par", "p1", "http", "one"}, {"par", "agent", "workers", "two\x00\xff"}, {"lyo", "p2", "http", "three"}}

	t.Run("an empty stream has no newest message", func(t *testing.T) {
		r, _ := open(t)
		cursor, at, err := r.Last(bounded(t))
		if cursor != 0 || !at.IsZero() || err != nil {
			t.Errorf("Last: got %d, %s, %v, want zero values", cursor, at, err)
		}
	})
	t.Run("messages are read in order and each once, those of before and those that arrive", func(t *testing.T) {
		r, p := open(t)
		publish(t, p, messages[0])
		publish(t, p, messages[1])
		f := follow(t, r, time.Time{})
		got := []engine.Message{f.next(t), f.next(t)}
		publish(t, p, messages[2])
		got = append(got, f.next(t))
		for i, m := range got {
			if diff := cmp.Diff(messages[i], message{m.Place, m.Vantage, m.Kind, string(m.Body)}); diff != "" {
				t.Errorf("message %d (-want +got):\n%s", i, diff)
			}
			if m.At.IsZero() || m.Cursor == 0 || i > 0 && (m.Cursor <= got[i-1].Cursor || m.At.Before(got[i-1].At)) {
				t.Errorf("message %d: cursor %d at %s, want both set and in order", i, m.Cursor, m.At)
			}
		}
		cursor, at, err := r.Last(bounded(t))
		if last := got[2]; err != nil || cursor != last.Cursor || !at.Equal(last.At) {
			t.Errorf("Last: got %d, %s, %v, want %d, %s as read", cursor, at, err, last.Cursor, last.At)
		}
		f.end(t)
	})
	t.Run("what was published is there when the store is opened again", func(t *testing.T) {
		_, p := open(t)
		publish(t, p, messages[0])
		r, _ := open(t)
		f := follow(t, r, time.Time{})
		if m := f.next(t); string(m.Body) != "one" {
			t.Errorf("message: got %q, want %q", m.Body, "one")
		}
		f.end(t)
	})
	t.Run("reading begins with what was stored at or after a time", func(t *testing.T) {
		r, p := open(t)
		publish(t, p, messages[0])
		publish(t, p, messages[1])
		_, since, err := r.Last(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		f := follow(t, r, since)
		m := f.next(t)
		if m.At.Before(since) {
			t.Errorf("message %q was stored at %s, before %s", m.Body, m.At, since)
		}
		for string(m.Body) != messages[1].Body { // the first may have the very same time
			m = f.next(t)
		}
		f.end(t)
	})
	t.Run("a reader that has enough ends the reading", func(t *testing.T) {
		r, p := open(t)
		publish(t, p, messages[0])
		enough := errors.New("enough")
		if err := r.Read(bounded(t), time.Time{}, func(engine.Message) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("Read: got %v, want %v", err, enough)
		}
	})
}

// follower is a Read that goes on.
type follower struct {
	messages chan engine.Message
	stop     context.CancelFunc
	ended    chan error
}

func follow(t *testing.T, r engine.Results, since time.Time) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f := &follower{messages: make(chan engine.Message), stop: cancel, ended: make(chan error, 1)}
	go func() {
		f.ended <- r.Read(ctx, since, func(m engine.Message) error {
			select {
			case f.messages <- m:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return f
}

func (f *follower) next(t *testing.T) engine.Message {
	t.Helper()
	select {
	case m := <-f.messages:
		return m
	case err := <-f.ended:
		t.Fatalf("Read: ended with %v, want another message", err)
	case <-bounded(t).Done():
		t.Fatalf("Read: no message within %s", patience)
	}
	return engine.Message{}
}

// end stops the reading, which must then return an error.
func (f *follower) end(t *testing.T) {
	t.Helper()
	f.stop()
	select {
	case err := <-f.ended:
		if err == nil {
			t.Error("Read: got nil at the end of its context, want an error")
		}
	case <-bounded(t).Done():
		t.Fatalf("Read: still running %s after the end of its context", patience)
	}
}
