//go:build linux

package servers

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

var here = Options{Dir: "/srv/x", Addr: netip.MustParseAddrPort("127.0.0.1:8123"), Origin: netip.MustParseAddrPort("127.0.0.1:8124")}

func TestConfig_NamesAddressAndFolder(t *testing.T) {
	for _, s := range All() {
		if s.launch != nil {
			continue
		}
		text := strings.Join(s.argv(here), " ")
		for _, file := range s.files(here) {
			text += "\n" + file
		}
		port := strings.Contains(text, "127.0.0.1:8123") || strings.Contains(text, `server.port = 8123`)
		if !port || !strings.Contains(text, "/srv/x") || strings.Contains(text, "%!") {
			t.Errorf("%s: configuration lacks address or folder, or is ill-formed:\n%s", s.Name, text)
		}
		if s.ownPID && !strings.Contains(text, here.PIDFile()) {
			t.Errorf("%s writes its pid file itself, and is not told where", s.Name)
		}
	}
}

func TestConfig_OptionsReachIt(t *testing.T) {
	all := func(s Spec, o Options) string {
		text, files := strings.Join(s.argv(o), " "), s.files(o)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			text += files[name]
		}
		return text
	}
	recycle, idle, daemon := here, here, here
	recycle.Recycle, idle.IdleTimeout, daemon.Daemon = 77, 88, true
	for _, s := range All() {
		if s.launch != nil {
			continue
		}
		if got := strings.Contains(all(s, recycle), "77"); got != s.Recycles {
			t.Errorf("%s: Recycle in its configuration: %t, want %t", s.Name, got, s.Recycles)
		}
		if got := strings.Contains(all(s, idle), "88"); got != s.Elastic {
			t.Errorf("%s: IdleTimeout in its configuration: %t, want %t", s.Name, got, s.Elastic)
		}
		if got := all(s, daemon) != all(s, here); got != s.Upgrades {
			t.Errorf("%s: Daemon changes its configuration: %t, want %t", s.Name, got, s.Upgrades)
		}
	}
}

// skip skips, unless nothing may be left out.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// started starts a server on a free port of loopback; the test ends it.
func started(t *testing.T, spec Spec, o Options) *Server {
	t.Helper()
	if os.Getuid() != 0 {
		skip(t, "servers drop their rights to another user, which needs root")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Addr = l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	if o.Dir, err = os.MkdirTemp("", "crosscheck-servers-"); err != nil { // not t.TempDir: other users must enter it
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(o.Dir) })
	o.Origin = netip.MustParseAddrPort("127.0.0.1:9")
	s, err := Prepare(spec, o)
	if errors.Is(err, ErrMissing) {
		skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if s.Lab != nil {
			s.Lab.Stop()
		}
		s.Kill()
	})
	if err := s.Start(ctx); err != nil {
		t.Fatalf("start: %v\n%s", err, s.Output())
	}
	return s
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := until(ctx, what, holds); err != nil {
		t.Fatal(err)
	}
}

func TestServers_StartAnswerReloadAndEnd(t *testing.T) {
	for _, spec := range All() {
		t.Run(spec.Name, func(t *testing.T) {
			t.Parallel()
			s := started(t, spec, Options{})
			if !spec.Elastic {
				eventually(t, "its workers", func() bool { return len(s.Workers()) == spec.Workers })
			}
			if err := s.Refresh(); err != nil {
				t.Errorf("reload: %v", err)
			}
			eventually(t, "an answer after the reload", func() bool {
				body, err := s.Get(t.Context(), "/")
				return err == nil && strings.Contains(body, spec.Answer)
			})
			main := s.Main()
			if s.Lab != nil {
				s.Lab.Stop()
			} else {
				s.Kill()
			}
			if Alive(main) {
				t.Errorf("main %d is alive after its end", main)
			}
		})
	}
}

func TestServer_AnEndedOneIsNoStart(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "servers drop their rights to another user, which needs root")
	}
	dir := t.TempDir()
	o := here
	o.Dir = dir
	s, err := Prepare(haproxy(), o)
	if errors.Is(err, ErrMissing) {
		skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/haproxy.cfg", []byte("nonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "ended at its start") {
		t.Errorf("Start with a broken configuration: %v", err)
	}
}

func TestLook_TellsHowFastCGIFailed(t *testing.T) {
	t.Parallel()
	s := started(t, fpmStatic(), Options{})
	look := func() checks.Finding {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return Look{Server: s, Body: s.Spec.Answer}.Look(ctx)
	}
	if f := look(); f.Outcome != checks.Pass {
		t.Errorf("a healthy pool: %+v", f)
	}
	for _, pid := range s.Workers() {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if f := look(); f.Outcome != checks.Fail || f.Reason != checks.ReasonNoAnswer {
		t.Errorf("a frozen pool: %+v, want %s", f, checks.ReasonNoAnswer)
	}
	s.Kill()
	// A worker's descriptors go a moment after main is gone.
	eventually(t, "a refused connection", func() bool { f := look(); return f.Outcome == checks.Fail && f.Reason == checks.ReasonConnectRefused })
}
