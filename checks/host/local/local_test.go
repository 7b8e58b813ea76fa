package local_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

var eachSecond = local.Ask{Every: time.Second}

// server listens on loopback and hands each connection to serve.
func server(t *testing.T, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestLooker_SaysWhatBecameOfTheConnection(t *testing.T) {
	asked := make(chan string, 1)
	for name, tt := range map[string]struct {
		addr netip.AddrPort
		want checks.LocalLook
	}{
		"nobody listens": {closedPort(t), checks.LocalRefused},
		"an answer": {server(t, func(c net.Conn) {
			b := make([]byte, 64)
			n, _ := c.Read(b)
			asked <- string(b[:n])
			io.WriteString(c, "HTTP/1.0 500 Oops\r\n\r\n")
			c.Close()
		}), checks.LocalAnswered},
		"an orderly close without a byte": {server(t, func(c net.Conn) { c.Read(make([]byte, 64)); c.Close() }), checks.LocalAnswered},
		"accepted and left alone":         {server(t, func(net.Conn) {}), checks.LocalUnanswered},
		"a reset": {server(t, func(c net.Conn) {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}), checks.LocalFailed},
	} {
		t.Run(name, func(t *testing.T) {
			l := local.New(local.Listener{Addr: tt.addr}, local.Deps{})
			now := time.Now()
			if got, started := l.Look(now, eachSecond); got.Look != "" || !started {
				t.Errorf("first Look() = %q, started %t, want none yet, started", got.Look, started)
			}
			l.Wait()
			if got, started := l.Look(now, eachSecond); got.Look != tt.want || started {
				t.Errorf("Look() = %q, started %t, want %q, not started", got.Look, started, tt.want)
			} else if got.Reset != (name == "a reset") {
				t.Errorf("Look() = %+v: reset %t", got, got.Reset)
			}
		})
	}
	if got := <-asked; got != "GET / HTTP/1.0\r\n\r\n" {
		t.Errorf("asked %q", got)
	}
}

func TestLooker_OneInFlightAndFewerWhenUnanswered(t *testing.T) {
	t.Parallel()
	conns := make(chan net.Conn, 16)
	addr := server(t, func(c net.Conn) { conns <- c })
	l := local.New(local.Listener{Addr: addr}, local.Deps{})
	now := time.Now()
	for range 10 {
		l.Look(now, eachSecond) // all while the first is in flight
	}
	l.Wait()
	if len(conns) != 1 {
		t.Fatalf("%d connections after ten looks at once, want 1", len(conns))
	}
	// Each unanswered look leaves an entry in a dead accept queue.
	for n, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		l.Look(now.Add(wait-time.Millisecond), eachSecond)
		l.Wait()
		if len(conns) != n+1 {
			t.Fatalf("%d connections before %v had passed, want %d", len(conns), wait, n+1)
		}
		now = now.Add(wait)
		l.Look(now, eachSecond)
		l.Wait()
		if len(conns) != n+2 {
			t.Fatalf("%d connections after %v, want %d", len(conns), wait, n+2)
		}
	}
}

func TestLooker_ANewNeedForgetsAndWaitsForNothing(t *testing.T) {
	l := local.New(local.Listener{Addr: closedPort(t)}, local.Deps{})
	hourly := local.Ask{Every: time.Hour}
	l.Look(time.Now(), hourly)
	l.Wait()
	hourly.Since = time.Now() // a look begun before counts no more
	if got, started := l.Look(time.Now(), hourly); got.Look != "" || !started {
		t.Errorf("Look() = %q, started %t, want none yet, started", got.Look, started)
	}
	l.Wait()
	if got, started := l.Look(time.Now(), hourly); got.Look != checks.LocalRefused || started {
		t.Errorf("Look() = %q, started %t, want refused, not started", got.Look, started)
	}
}

func TestLooker_CloseEndsTheLookAndLetsNoneBegin(t *testing.T) {
	t.Parallel()
	conns := make(chan net.Conn, 4)
	l := local.New(local.Listener{Addr: server(t, func(c net.Conn) { conns <- c })}, local.Deps{})
	begin := time.Now()
	l.Look(begin, local.Ask{})
	<-conns
	l.Close()
	if took := time.Since(begin); took >= local.Timeout/2 {
		t.Errorf("Close() took %v, want it to end the look at once", took)
	}
	if _, started := l.Look(begin.Add(time.Hour), local.Ask{}); started {
		t.Error("a look began after Close()")
	}
	local.New(local.Listener{}, local.Deps{}).Close()
}

func TestLooker_AWildcardIsLookedAtOnLoopback(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan net.Addr, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			got <- c.LocalAddr()
			c.Close()
		}
	}()
	look := local.New(local.Listener{Addr: netip.MustParseAddrPort(l.Addr().String())}, local.Deps{})
	look.Look(time.Now(), eachSecond)
	look.Wait()
	if a := (<-got).(*net.TCPAddr).IP.String(); a != "127.0.0.1" {
		t.Errorf("looked at %s, want 127.0.0.1", a)
	}
}

// A look that began before somebody's present need tells it nothing: it is given
// up, and leaves no result.
func TestLooker_ANewNeedGivesUpTheLookInFlight(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	looker := local.New(local.Listener{Addr: netip.MustParseAddrPort(l.Addr().String())}, local.Deps{})
	defer looker.Close()
	if _, started := looker.Look(time.Now(), local.Ask{Every: time.Hour}); !started {
		t.Fatal("no look began")
	}
	mute, err := l.Accept() // takes it, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	need := local.Ask{Since: time.Now(), Every: time.Hour}
	looker.Look(time.Now(), need)
	if _, err := io.Copy(io.Discard, mute); err != nil { // until it is closed
		t.Fatal(err)
	}
	looker.Wait()
	if last, started := looker.Look(time.Now(), need); !started || last.Look != "" {
		t.Errorf("after the look was given up: %+v, another began: %t; want no result, and another", last, started)
	}
	if last, _ := looker.Look(time.Now(), local.Ask{Every: time.Hour}); last.Look != "" {
		t.Errorf("the look that was given up says %q", last.Look)
	}
}
