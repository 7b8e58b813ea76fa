package wire_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/probe/wire"
	"github.com/crosscheck-project/crosscheck/probe/wire/hub"
)

// deadline bounds what must happen soon; a loaded machine needs room.
const deadline = 30 * time.Second

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func startHub(t testing.TB, o hub.Options) *hub.Hub {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Log = testLog(t)
	h, err := hub.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("hub.Start(%s): %v", o.Dir, err)
	}
	t.Cleanup(h.Stop)
	return h
}

func connect(t testing.TB, o wire.Options) *wire.Client {
	t.Helper()
	c, err := wire.Connect(o)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func startClient(t testing.TB) *wire.Client {
	t.Helper()
	return connect(t, startHub(t, hub.Options{}).InProcess())
}

// follow reads RESULTS in the background and sends what comes to a channel.
func follow(t *testing.T, c *wire.Client, since time.Time) (<-chan wire.Message, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan wire.Message, 10_000), make(chan error, 1)
	go func() {
		done <- c.ReadResults(ctx, since, func(m wire.Message) error { got <- m; return nil })
	}()
	var once sync.Once
	var err error
	stop := func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return got, stop
}

func next(t *testing.T, from <-chan wire.Message) wire.Message {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(deadline):
		t.Fatalf("no message within %s", deadline)
		return wire.Message{}
	}
}

func TestPublish_WhatIsPublishedIsRead(t *testing.T) {
	c := startClient(t)
	before := time.Now().Add(-time.Second)
	if err := c.Publish(t.Context(), "par", "p1", "http", "id-1", []byte("hello")); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	got, _ := follow(t, c, time.Time{})
	m := next(t, got)
	if m.Stored.Before(before) || m.Stored.After(time.Now().Add(time.Second)) {
		t.Errorf("stored at %s, want about now", m.Stored)
	}
	m.Stored = time.Time{}
	want := wire.Message{Seq: 1, Place: "par", Vantage: "p1", Kind: "http", Body: []byte("hello")}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
}

func TestPublish_ARepeatedMessageIDIsStoredOnceAndSucceeds(t *testing.T) {
	c := startClient(t)
	for _, id := range []string{"a-1", "a-1", "a-2"} {
		if err := c.Publish(t.Context(), "par", "p1", "http", id, []byte(id)); err != nil {
			t.Fatalf("Publish(%s): %v", id, err)
		}
	}
	got, _ := follow(t, c, time.Time{})
	if a, b := next(t, got), next(t, got); string(a.Body) != "a-1" || string(b.Body) != "a-2" || b.Seq != 2 {
		t.Errorf("got %q at %d then %q at %d, want a-1 at 1 then a-2 at 2", a.Body, a.Seq, b.Body, b.Seq)
	}
}

func TestPublish_AnOverlargeBodyIsRefusedWithItsSize(t *testing.T) {
	c := startClient(t)
	err := c.Publish(t.Context(), "par", "p1", "http", "id", make([]byte, 1<<20+1))
	if !errors.Is(err, wire.ErrTooLarge) || !strings.Contains(err.Error(), "1048577 bytes") {
		t.Errorf("Publish of 1 MiB + 1: %v, want ErrTooLarge with the size", err)
	}
	if err := c.Ask("par", "p1", make([]byte, 1<<20+1)); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("Ask of 1 MiB + 1: %v, want ErrTooLarge", err)
	}
	if err := c.Publish(t.Context(), "par", "p1", "http", "id", make([]byte, 1<<20-1<<10)); err != nil {
		t.Errorf("Publish of 1 MiB less 1 kB for headers: %v, want none", err)
	}
}

func TestNames_WhatWouldChangeTheSubjectIsRefused(t *testing.T) {
	c := startClient(t)
	for _, bad := range []string{"", "a.b", "*", ">", "a b", "a\tb", "a\r\nPUB x", "é", strings.Repeat("a", 64)} {
		for name, err := range map[string]error{
			"Publish place":   c.Publish(t.Context(), bad, "p1", "http", "id", nil),
			"Publish vantage": c.Publish(t.Context(), "par", bad, "http", "id", nil),
			"Publish kind":    c.Publish(t.Context(), "par", "p1", bad, "id", nil),
			"Ask":             c.Ask("par", bad, nil),
			"Append":          func() error { _, err := c.Append(t.Context(), 0, bad, nil); return err }(),
			"Asks":            func() error { _, err := c.Asks(bad, "p1", func([]byte) {}); return err }(),
			"CheckName":       wire.CheckName(bad),
		} {
			if !errors.Is(err, wire.ErrName) {
				t.Errorf("%s with %q: %v, want ErrName", name, bad, err)
			}
		}
	}
	if err := wire.CheckName("web-1_A"); err != nil {
		t.Errorf("CheckName(web-1_A): %v, want none", err)
	}
}

func TestAppend_OnlyTheOneWhoKnowsTheEndMayWrite(t *testing.T) {
	c := startClient(t)
	for i := range uint64(3) {
		seq, err := c.Append(t.Context(), i, "step", []byte{byte(i)})
		if err != nil || seq != i+1 {
			t.Fatalf("Append after %d: %d, %v, want %d", i, seq, err, i+1)
		}
	}
	for _, wrong := range []uint64{0, 2, 4} {
		if _, err := c.Append(t.Context(), wrong, "other", nil); !errors.Is(err, wire.ErrWrongLast) {
			t.Errorf("Append after %d to a journal that ends at 3: %v, want ErrWrongLast", wrong, err)
		}
	}
	last, err := c.ReadJournal(t.Context(), 0, func(wire.Entry) error { return nil })
	if err != nil || last != 3 {
		t.Errorf("ReadJournal: last %d, %v, want 3: a refused append wrote", last, err)
	}
}

func TestAppend_OfTwoWritersAtOnceOneWins(t *testing.T) {
	h := startHub(t, hub.Options{})
	a, b := connect(t, h.InProcess()), connect(t, h.InProcess())
	for i := range uint64(20) {
		errs := make(chan error, 2)
		for _, c := range []*wire.Client{a, b} {
			go func() { _, err := c.Append(t.Context(), i, "step", nil); errs <- err }()
		}
		one, two := <-errs, <-errs
		if one != nil {
			one, two = two, one
		}
		if one != nil || !errors.Is(two, wire.ErrWrongLast) {
			t.Fatalf("round %d: %v and %v, want one success and one ErrWrongLast", i, one, two)
		}
	}
}

func TestReadJournal_ReadsFromAPositionToTheEnd(t *testing.T) {
	c := startClient(t)
	read := func(after uint64) (seqs []uint64, last uint64, err error) {
		last, err = c.ReadJournal(t.Context(), after, func(e wire.Entry) error {
			if e.Kind != "step" || string(e.Body) != fmt.Sprint(e.Seq) || e.Stored.IsZero() {
				return fmt.Errorf("entry %+v", e)
			}
			seqs = append(seqs, e.Seq)
			return nil
		})
		return seqs, last, err
	}
	if seqs, last, err := read(0); len(seqs) != 0 || last != 0 || err != nil {
		t.Errorf("empty journal: %v, last %d, %v", seqs, last, err)
	}
	const entries = 1200 // more than the client asks for at once
	for i := range uint64(entries) {
		if _, err := c.Append(t.Context(), i, "step", fmt.Append(nil, i+1)); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	for _, after := range []uint64{0, 1, 700, entries - 1, entries} {
		seqs, last, err := read(after)
		if err != nil || last != entries || len(seqs) != int(entries-after) {
			t.Fatalf("after %d: %d entries, last %d, %v", after, len(seqs), last, err)
		}
		for i, s := range seqs {
			if s != after+uint64(i)+1 {
				t.Fatalf("after %d: entry %d has sequence %d", after, i, s)
			}
		}
	}
	if _, last, err := read(entries + 1); !errors.Is(err, wire.ErrBehind) || last != entries+1 {
		t.Errorf("after %d: last %d, %v, want ErrBehind", entries+1, last, err)
	}
}

func TestReadJournal_TheCallersErrorEndsItWithHowFarItGot(t *testing.T) {
	c := startClient(t)
	for i := range uint64(5) {
		if _, err := c.Append(t.Context(), i, "step", nil); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	enough := errors.New("enough")
	last, err := c.ReadJournal(t.Context(), 1, func(e wire.Entry) error {
		if e.Seq == 4 {
			return enough
		}
		return nil
	})
	if last != 3 || !errors.Is(err, enough) {
		t.Errorf("ReadJournal: last %d, %v, want 3 and the caller's error", last, err)
	}
}

func TestReadResults_EndsWithTheCallersErrorOrItsContext(t *testing.T) {
	c := startClient(t)
	_, stop := follow(t, c, time.Time{})
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadResults after cancel: %v, want context.Canceled", err)
	}
	if err := c.Publish(t.Context(), "par", "p1", "http", "id", nil); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	enough := errors.New("enough")
	if err := c.ReadResults(t.Context(), time.Time{}, func(wire.Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("ReadResults: %v, want the caller's error", err)
	}
}

func TestReadResults_BeginsAtTheGivenTime(t *testing.T) {
	c := startClient(t)
	publish := func(id string) {
		t.Helper()
		if err := c.Publish(t.Context(), "par", "p1", "http", id, []byte(id)); err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
	publish("old")
	all, _ := follow(t, c, time.Time{})
	since := next(t, all).Stored.Add(1)
	publish("new")
	late, _ := follow(t, c, since)
	if m := next(t, late); string(m.Body) != "new" {
		t.Errorf("first message since then is %q, want new", m.Body)
	}
	future, _ := follow(t, c, time.Now().Add(time.Hour))
	next(t, all)
	publish("newer")
	next(t, all)
	select {
	case m := <-future:
		t.Errorf("message %q, though stored before since", m.Body)
	default:
	}
}

func TestReadResults_SkipsAndDoublesNothingWhileTheHubRestarts(t *testing.T) {
	dir := t.TempDir()
	const password = "the same after the restart"
	h := startHub(t, hub.Options{Dir: dir, Password: password})
	d := &swappable{hub: h}
	opts := h.InProcess()
	opts.InProcess = d
	c := connect(t, opts)
	got, _ := follow(t, c, time.Time{})

	seq := uint64(0)
	publish := func(from *hub.Hub, n int) {
		t.Helper()
		p := connect(t, from.InProcess())
		defer p.Close()
		for range n {
			seq++
			if err := p.Publish(t.Context(), "par", "p1", "http", fmt.Sprint(seq), nil); err != nil {
				t.Fatalf("Publish %d: %v", seq, err)
			}
		}
	}
	read := uint64(0)
	for range 3 {
		publish(h, 50)
		for read < seq-10 {
			read++
			if m := next(t, got); m.Seq != read {
				t.Fatalf("sequence %d after %d", m.Seq, read-1)
			}
		}
		h.Stop()
		h = startHub(t, hub.Options{Dir: dir, Password: password})
		d.set(h)
	}
	publish(h, 5)
	for read < seq {
		read++
		if m := next(t, got); m.Seq != read {
			t.Fatalf("sequence %d after %d", m.Seq, read-1)
		}
	}
}

func TestReadResults_SkipsAndDoublesNothingWhenItsConsumerIsTakenAway(t *testing.T) {
	h := startHub(t, hub.Options{})
	c, other := connect(t, h.InProcess()), connect(t, h.InProcess())
	got, _ := follow(t, c, time.Time{})
	for seq := uint64(1); seq <= 300; seq++ {
		if err := other.Publish(t.Context(), "par", "p1", "http", fmt.Sprint(seq), nil); err != nil {
			t.Fatalf("Publish: %v", err)
		}
		if m := next(t, got); m.Seq != seq {
			t.Fatalf("sequence %d after %d", m.Seq, seq-1)
		}
		if seq%100 == 50 {
			if n, err := other.DeleteConsumers(t.Context()); n != 1 || err != nil {
				t.Fatalf("deleted %d consumers, %v, want the reader's one", n, err)
			}
		}
	}
}

func TestReadResults_ALostStoreIsAnErrorAndNotSilence(t *testing.T) {
	for name, newMessages := range map[string]int{"an empty one": 0, "one that is already further": 9} {
		t.Run(name, func(t *testing.T) { replaceStore(t, newMessages) })
	}
}

// replaceStore replaces RESULTS under a reader by a stream with that many
// messages.
func replaceStore(t *testing.T, newMessages int) {
	h := startHub(t, hub.Options{})
	c, other := connect(t, h.InProcess()), connect(t, h.InProcess())
	for i := range 5 {
		if err := other.Publish(t.Context(), "par", "p1", "http", fmt.Sprint(i), nil); err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
	done := make(chan error, 1)
	fifth := make(chan struct{})
	go func() {
		done <- c.ReadResults(t.Context(), time.Time{}, func(m wire.Message) error {
			if m.Seq == 5 {
				close(fifth)
			}
			return nil
		})
	}()
	<-fifth
	if err := other.ReplaceResults(t.Context()); err != nil {
		t.Fatalf("ReplaceResults: %v", err)
	}
	for i := range newMessages {
		if err := other.Publish(t.Context(), "par", "p1", "http", fmt.Sprint("new ", i), nil); err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
	select {
	case err := <-done:
		if !errors.Is(err, wire.ErrBehind) {
			t.Errorf("ReadResults: %v, want ErrBehind", err)
		}
	case <-time.After(deadline):
		t.Errorf("ReadResults says nothing %s after its store was replaced", deadline)
	}
}

func TestLastResult_IsTheNewest(t *testing.T) {
	c := startClient(t)
	if seq, stored, err := c.LastResult(t.Context()); seq != 0 || !stored.IsZero() || err != nil {
		t.Errorf("LastResult of nothing: %d, %s, %v", seq, stored, err)
	}
	got, _ := follow(t, c, time.Time{})
	for i := range 3 {
		if err := c.Publish(t.Context(), "par", "p1", "http", fmt.Sprint(i), nil); err != nil {
			t.Fatalf("Publish: %v", err)
		}
		m := next(t, got)
		if seq, stored, err := c.LastResult(t.Context()); seq != m.Seq || !stored.Equal(m.Stored) || err != nil {
			t.Errorf("LastResult: %d stored %s, %v, want %d stored %s", seq, stored, err, m.Seq, m.Stored)
		}
	}
}

func TestPublish_FailsAtOnceWhileTheHubIsAway(t *testing.T) {
	h := startHub(t, hub.Options{Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	opts, ok := h.Loopback()
	if !ok {
		t.Fatal("Loopback: the hub does not listen")
	}
	opts.Log = testLog(t)
	c := connect(t, opts)
	if err := c.Publish(t.Context(), "par", "p1", "http", "1", nil); err != nil {
		t.Fatalf("Publish over loopback: %v", err)
	}
	h.Stop()
	// The first publish may meet the dying connection; none may hang.
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	err := c.Publish(ctx, "par", "p1", "http", "2", nil)
	for range 2 {
		if err == nil || ctx.Err() != nil {
			t.Fatalf("Publish without a hub: %v, context %v, want an error at once", err, ctx.Err())
		}
		err = c.Publish(ctx, "par", "p1", "http", "2", nil)
	}
}

func TestLoopback_WithoutThePasswordNobodyComesIn(t *testing.T) {
	h := startHub(t, hub.Options{Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	opts, _ := h.Loopback()
	opts.Password = "guess"
	if c, err := wire.Connect(opts); err == nil {
		c.Close()
		t.Error("Connect with a wrong password: no error")
	}
	opts.User, opts.Password = "", ""
	if c, err := wire.Connect(opts); err == nil {
		c.Close()
		t.Error("Connect without a user: no error")
	}
}

func TestAsk_ReachesTheVantageThatListensAndNoOther(t *testing.T) {
	c := startClient(t)
	mine, other := make(chan string, 10), make(chan string, 10)
	stop, err := c.Asks("par", "p1", func(b []byte) { mine <- string(b) })
	if err != nil {
		t.Fatalf("Asks: %v", err)
	}
	stopOther, err := c.Asks("par", "p2", func(b []byte) { other <- string(b) })
	if err != nil {
		t.Fatalf("Asks: %v", err)
	}
	defer stopOther()
	if err := c.Ask("par", "p1", []byte("look")); err != nil {
		t.Fatalf("Ask: %v", err)
	}
	select {
	case got := <-mine:
		if got != "look" {
			t.Errorf("asked %q, want look", got)
		}
	case <-time.After(deadline):
		t.Fatal("the ask did not arrive")
	}
	stop()
	stop() // twice does no harm
	if err := c.Ask("par", "p1", []byte("late")); err != nil {
		t.Errorf("Ask of nobody: %v, want none", err)
	}
	if err := c.Ask("par", "p2", []byte("end")); err != nil {
		t.Fatalf("Ask: %v", err)
	}
	if got := <-other; got != "end" {
		t.Errorf("p2 was asked %q, want only end", got)
	}
	if len(mine) != 0 {
		t.Errorf("asked %q after stop", <-mine)
	}
}

// swappable dials whichever hub runs now.
type swappable struct {
	mu  sync.Mutex
	hub *hub.Hub
}

func (s *swappable) set(h *hub.Hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub = h
}

func (s *swappable) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub.InProcess().InProcess.InProcessConn()
}
