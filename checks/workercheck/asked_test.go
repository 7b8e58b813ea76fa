package workercheck

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// Workers that sit and wait look well: that they answer nobody is found by our
// own connection, which is made once somebody asks because the outside failed.
func TestLook_AnAskedLookConnectsThoughAllLookWell(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var deaf atomic.Bool
	var taken atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			if !deaf.Load() {
				_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n") // one that has gone is not our concern
				c.Close()
			}
		}
	}()
	c, src, now := newFake()
	defer c.Close()
	src.snap.Listeners = []host.Listener{{Addr: netip.MustParseAddrPort(l.Addr().String()), Listening: true, EverListening: true}}
	look := func(ctx context.Context) checks.Finding {
		*now += 10 * time.Millisecond
		src.snap.Sweep++
		src.snap.At, src.snap.DumpAt = *now, *now
		return c.Look(ctx)
	}
	until := func(what string, ctx context.Context, ok func(checks.Finding) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !ok(look(ctx)); <-time.After(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited 10s for %s", what)
			}
		}
	}
	until("an answer, once in a generation", t.Context(), func(f checks.Finding) bool { return c.trial.over && f.Workers.Local == "" })
	deaf.Store(true)
	before := taken.Load()
	for range 20 {
		look(t.Context())
	}
	if n := taken.Load(); n != before {
		t.Errorf("%d connections of our own while all looks well and nobody asked", n-before)
	}
	until("silence after an accepted connection", checks.WithAsked(t.Context()), func(f checks.Finding) bool {
		return f.Workers.Local == checks.LocalAccepted && f.Workers.LocalFails > 0 && f.Workers.Serving == 2
	})
}
