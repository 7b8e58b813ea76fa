package host_test

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

func TestMain(m *testing.M) {
	hosttest.Main()
	os.Exit(m.Run())
}

// observe runs an observer of one target until the test ends.
func observe(t testing.TB, target host.Target) *host.Observer {
	t.Helper()
	target.Name = "it"
	o, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	return o
}

// until waits for a snapshot that satisfies ok.
func until(t testing.TB, o *host.Observer, what string, ok func(host.Snapshot) bool) host.Snapshot {
	t.Helper()
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if s, there := o.Snapshot("it"); there && ok(s) {
			return s
		}
		select {
		case <-o.Changed():
		case <-poll.C:
		case <-deadline:
			s, _ := o.Snapshot("it")
			t.Fatalf("no snapshot with %s within 10 s; last: %+v", what, s)
		}
	}
}

func healthy(n int) func(host.Snapshot) bool {
	return func(s host.Snapshot) bool {
		return s.Main.Status == host.MainAlive && len(s.Workers) == n && s.Listeners[0].Listening && len(s.Listeners[0].Owners) >= n
	}
}

func count(s host.Snapshot, kind host.EventKind) (n int) {
	for _, e := range s.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

var modes = []struct {
	name   string
	shared bool
}{{"shared listener", true}, {"one listener per worker (reuseport)", false}}

func TestObserver_FindsMainByPIDFileAndByPort(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			s := hosttest.Start(t, hosttest.Options{Workers: 3, Shared: m.shared, Respawn: 100 * time.Millisecond})
			byFile := until(t, observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}), "3 workers", healthy(3))
			byPort := until(t, observe(t, host.Target{Port: s.Addr}), "3 workers", healthy(3))
			if byFile.Main.Process.PID != s.PID || byPort.Main.Process.PID != s.PID {
				t.Errorf("main by pid file %d, by port %d, want %d", byFile.Main.Process.PID, byPort.Main.Process.PID, s.PID)
			}
		})
	}
}

func TestObserver_SeesACrashLoopWithExitCodes(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			s := hosttest.Start(t, hosttest.Options{Workers: 4, Shared: m.shared, Respawn: 100 * time.Millisecond})
			o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
			until(t, o, "4 workers", healthy(4))
			at := s.Do("crash on")
			snap := until(t, o, "12 deaths", func(s host.Snapshot) bool { return count(s, host.Death)+count(s, host.Unseen) >= 12 })
			t.Logf("12 deaths seen after %v: %d known, %d unseen", time.Since(at), count(snap, host.Death), count(snap, host.Unseen))
			exits := map[string]int{}
			for _, e := range snap.Events {
				if e.Kind == host.Death {
					exits[e.Exit.String()]++
				}
			}
			if exits["SIGKILL"] != 4 || exits["exit 13"]+exits["unknown"]+4 != count(snap, host.Death) {
				t.Errorf("exits = %v, want 4 SIGKILL and otherwise exit 13 (unknown on kernels before 6.15)", exits)
			}
			s.Do("crash off")
			until(t, o, "recovery", healthy(4))
		})
	}
}

func TestObserver_TellsShutdownFromClose(t *testing.T) {
	for _, m := range modes {
		for order, held := range map[string]bool{"shutdown": true, "close": false} {
			t.Run(m.name+", "+order, func(t *testing.T) {
				s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: m.shared, Respawn: time.Second})
				o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
				until(t, o, "2 workers", healthy(2))
				at := s.Do(order)
				snap := until(t, o, "3 dumps without the listener", func(s host.Snapshot) bool {
					return s.Listeners[0].AbsentDumps >= 3 && s.Listeners[0].AbsentFor >= 150*time.Millisecond
				})
				t.Logf("decidable after %v", time.Since(at))
				if l := snap.Listeners[0]; l.Held != held || !l.EverListening || snap.Main.Status != host.MainAlive || len(snap.Workers) != 2 {
					t.Errorf("listener %+v, main %s, %d workers; want Held %t, EverListening, main alive, 2 workers", l, snap.Main.Status, len(snap.Workers), held)
				}
			})
		}
	}
}

func TestObserver_SeesStoppedWorkersAndAMainThatDies(t *testing.T) {
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "2 workers", healthy(2))
	s.Do("stop")
	until(t, o, "2 stopped workers", func(s host.Snapshot) bool {
		return len(s.Workers) == 2 && s.Workers[0].State == "stopped" && s.Workers[1].State == "stopped"
	})
	s.Do("cont")
	s.Stop()
	snap := until(t, o, "main gone", func(s host.Snapshot) bool { return s.Main.Status == host.MainGone })
	if n := count(snap, host.MainDeath); n != 1 {
		t.Errorf("%d main deaths, want 1: %+v", n, snap.Events)
	}
}

// skip skips, or fails where skipping is forbidden.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// copySelf puts the test binary where any user may run it.
func copySelf(t *testing.T) string {
	t.Helper()
	from, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "observer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	to := dir + "/observer.test"
	if err := os.WriteFile(to, from, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}
