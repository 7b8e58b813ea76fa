package local_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

// until looks every millisecond until ok, or fails the test.
func until(t *testing.T, l *local.Looker, ask local.Ask, ok func(local.Result) bool) local.Result {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, _ := l.Look(time.Now(), ask)
		if ok(got) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("Look() = %+v after 10 s", got)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestLooker_TheKernelTellsWhetherItWasAccepted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		accepted, known bool
		want            checks.LocalLook
	}{
		"taken":        {true, true, checks.LocalAccepted},
		"not taken":    {false, true, checks.LocalUnanswered},
		"nobody knows": {true, false, checks.LocalUnanswered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := server(t, func(net.Conn) {})
			l := local.New(local.Listener{Addr: addr}, local.Deps{Accepted: func(client, server netip.AddrPort) (bool, bool) {
				if server != addr || client.Addr() != addr.Addr() || client.Port() == 0 {
					t.Errorf("asked for %s to %s, want to %s", client, server, addr)
				}
				return tt.accepted, tt.known
			}})
			began := time.Now()
			early := until(t, l, local.Ask{Every: time.Hour, Early: true}, func(r local.Result) bool { return r.Look != "" })
			if early.Look != tt.want || early.Exact != tt.known || !early.Began.Before(early.Ended) || early.Began.Before(began) {
				t.Errorf("early = %+v, want %s, exact %t", early, tt.want, tt.known)
			}
			l.Wait()
			got, _ := l.Look(time.Now(), local.Ask{Every: time.Hour})
			if got.Look != tt.want || got.Exact != tt.known || !got.Began.Equal(early.Began) || !got.Ended.After(early.Ended) {
				t.Errorf("in the end = %+v, want %s, exact %t, the same look as %+v", got, tt.want, tt.known, early)
			}
			if l.Answered() {
				t.Error("Answered() = true, nobody answered")
			}
		})
	}
}

func TestLooker_UnixSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	srv, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	go func() {
		for {
			c, err := srv.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 64))
			c.Write([]byte("x"))
			c.Close()
		}
	}()
	l := local.New(local.Listener{Path: path}, local.Deps{})
	l.Look(time.Now(), eachSecond)
	l.Wait()
	if got, _ := l.Look(time.Now(), eachSecond); got.Look != checks.LocalAnswered || got.Peer != os.Getpid() || !l.Answered() {
		t.Errorf("Look() = %+v, answered %t, want answered by a socket of process %d", got, l.Answered(), os.Getpid())
	}
	for name, path := range map[string]string{"no such name": filepath.Join(dir, "none"), "abstract, unknown": "@crosscheck-nobody"} {
		l := local.New(local.Listener{Path: path}, local.Deps{})
		l.Look(time.Now(), eachSecond)
		l.Wait()
		if got, _ := l.Look(time.Now(), eachSecond); got.Look != checks.LocalRefused {
			t.Errorf("%s: Look() = %+v, want refused", name, got)
		}
	}
}

func TestLooker_LooksWhereTheTargetIs(t *testing.T) {
	t.Parallel()
	dialled := make(chan string, 1)
	l := local.New(local.Listener{Addr: netip.MustParseAddrPort("192.0.2.1:80")}, local.Deps{
		Dial: func(_ context.Context, network, address string) (net.Conn, error) {
			dialled <- network + " " + address
			ours, theirs := net.Pipe()
			theirs.Close()
			return ours, nil
		}})
	l.Look(time.Now(), eachSecond)
	l.Wait()
	if got := <-dialled; got != "tcp 192.0.2.1:80" {
		t.Errorf("dialled %q", got)
	}
}

func TestThrough_DialsWithinWhatItIsGiven(t *testing.T) {
	addr := server(t, func(c net.Conn) { c.Close() })
	within := 0
	dial := local.Through(func(f func() error) error { within++; return f() })
	c, err := dial(context.Background(), "tcp", addr.String())
	if err != nil || within != 1 {
		t.Fatalf("dial() = %v, within %d times, want nil, once", err, within)
	}
	c.Close()
	l := local.New(local.Listener{Addr: addr}, local.Deps{Dial: local.Through(func(func() error) error { return os.ErrNotExist })})
	l.Look(time.Now(), eachSecond)
	l.Wait()
	if got, _ := l.Look(time.Now(), eachSecond); got.Look != checks.LocalFailed {
		t.Errorf("Look() = %q where the namespace is gone, want failed: it says nothing of the listener", got.Look)
	}
}

func TestPool_HasOneLookerForEachListenerOfATarget(t *testing.T) {
	var p local.Pool
	a := local.Listener{Addr: netip.MustParseAddrPort("127.0.0.1:1")}
	one := p.Looker("it", a, local.Deps{})
	if p.Looker("it", a, local.Deps{}) != one {
		t.Error("two lookers of one listener")
	}
	if p.Looker("other", a, local.Deps{}) == one || p.Looker("it", local.Listener{Path: "/s"}, local.Deps{}) == one {
		t.Error("one looker of two listeners")
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	for _, l := range []*local.Looker{one, p.Looker("late", a, local.Deps{})} {
		if _, started := l.Look(time.Now(), local.Ask{}); started {
			t.Error("a look began after Close()")
		}
	}
}
