package host_test

import (
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// intrude binds addr beside whoever has it, as a program of the given name, and
// returns its pid and when it was bound at the latest.
func intrude(t *testing.T, addr netip.AddrPort, name string) (pid int, at time.Duration) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), name)
	in, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(copied, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	out.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command(copied)
	cmd.Env = append(os.Environ(), hosttest.Env+"=worker", "HT_ADDR="+addr.String())
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	tell.Close()
	if n, err := ready.Read(make([]byte, 1)); n != 1 {
		t.Fatalf("the intruder did not bind: %v", err)
	}
	return cmd.Process.Pid, host.BootTime()
}

func TestStrangers_AnIntrudersSocketBesideTheServicesOwnIsFoundAndSeenTwice(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	before := until(t, o, "2 workers", healthy(2))
	if l := before.Listeners[0]; len(l.Group) != 2 || l.Group[0].Foreign || l.Group[1].Foreign || l.Group[0].Backlog == 0 {
		t.Fatalf("group = %+v, want 2 sockets of its own", l.Group)
	}
	pid, at := intrude(t, s.Addr, "thief")
	got := until(t, o, "strangers seen twice", func(s host.Snapshot) bool { return s.Listeners[0].ForeignLook >= 2 })
	l := got.Listeners[0]
	t.Logf("seen first %v, twice %v after the bind", l.ForeignSince-at, host.BootTime()-at)
	foreign := 0
	for _, s := range l.Group {
		if s.Foreign {
			foreign++
		}
	}
	if foreign != 1 || len(l.Group) != 3 {
		t.Errorf("group = %+v, want 1 of 3 foreign", l.Group)
	}
	who := 0
	for _, owner := range l.Owners {
		if owner.Role == checks.RoleForeign {
			who = owner.PID
		}
	}
	if who != pid || len(l.Owners) != 3 {
		t.Errorf("owners = %+v, want the intruder %d and 2 of the service", l.Owners, pid)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	until(t, o, "no strangers", func(s host.Snapshot) bool {
		l := s.Listeners[0]
		return l.ForeignLook == 0 && l.ForeignSince == 0 && len(l.Group) == 2 && len(l.Owners) == 2
	})
}

func TestStrangers_TheServicesOwnProgramIsNone(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 1, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "a worker", healthy(1))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := intrude(t, s.Addr, filepath.Base(exe)+".old")
	got := until(t, o, "both owners", func(s host.Snapshot) bool { return len(s.Listeners[0].Owners) == 2 })
	l := got.Listeners[0]
	for _, owner := range l.Owners {
		if owner.PID == pid && owner.Role != checks.RoleWorker {
			t.Errorf("owner %d is %s, want a worker: it runs the service's own program", pid, owner.Role)
		}
	}
	if l.ForeignLook != 0 || l.Group[0].Foreign || l.Group[1].Foreign {
		t.Errorf("listener = %+v, want no stranger", l)
	}
}

// TestStrangers_ACrashLoopInventsNone: workers that are born and die between the
// sweep and the walk must not look like strangers (inhost.md, F10).
func TestStrangers_ACrashLoopInventsNone(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 4, Respawn: 20 * time.Millisecond})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "4 workers", healthy(4))
	for range 20 {
		s.Do("kill")
		seen, _ := o.Snapshot("it")
		until(t, o, "5 sweeps", func(s host.Snapshot) bool {
			for _, g := range s.Listeners[0].Group {
				if g.Foreign {
					t.Fatalf("listener = %+v, want no stranger", s.Listeners[0])
				}
			}
			return s.Sweep >= seen.Sweep+5
		})
	}
	t.Logf("%d walks over %d sweeps", o.Stats().Scans, o.Stats().Sweeps)
}

// TestStrangers_AnotherProgramOfTheSameInterpreter: python3 is gunicorn's
// executable and the intruder's.
func TestStrangers_AnotherProgramOfTheSameInterpreter(t *testing.T) {
	t.Parallel()
	gunicorn, python := need(t, "gunicorn"), need(t, "python3")
	dir, at := t.TempDir(), freeAddr(t)
	if err := os.WriteFile(dir+"/app.py", []byte("def app(e, s):\n s('200 OK', [])\n return [b'ok']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	if err := run(gunicorn, "--daemon", "--reuse-port", "-w", "2", "-b", at.String(), "-p", dir+"/pid", "--log-file", dir+"/log", "app:app").Wait(); err != nil {
		t.Fatal(err)
	}
	arbiter := func(file string) int {
		b, _ := os.ReadFile(dir + file)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return pid
	}
	t.Cleanup(func() {
		for _, f := range []string{"/pid", "/pid.2"} { // an upgrade's
			if pid := arbiter(f); pid > 1 {
				syscall.Kill(pid, syscall.SIGTERM)
				eventually(t, "gunicorn to end", func() bool { return ended(pid) })
			}
		}
	})
	o := observe(t, host.Target{PIDFile: dir + "/pid", Listeners: []netip.AddrPort{at}})
	old := until(t, o, "2 workers", healthy(2)).Main.Process.PID
	thief := run(python, "-c", "import socket,time\ns=socket.socket()\ns.setsockopt(1,15,1)\ns.bind(('127.0.0.1',"+strconv.Itoa(int(at.Port()))+"))\ns.listen(5)\ntime.sleep(60)")
	t.Cleanup(func() { thief.Process.Kill(); thief.Wait() })
	s := until(t, o, "strangers seen twice", func(s host.Snapshot) bool { return s.Listeners[0].ForeignLook >= 2 })
	for _, owner := range s.Listeners[0].Owners {
		if (owner.Role == checks.RoleForeign) != (owner.PID == thief.Process.Pid) {
			t.Errorf("owner %d (%s) is %s", owner.PID, owner.Title, owner.Role)
		}
	}
	thief.Process.Kill()
	until(t, o, "no strangers", func(s host.Snapshot) bool { return s.Listeners[0].ForeignLook == 0 })
	// A new arbiter beside the old one is none.
	watchNever(t, o, "a stranger", func(s host.Snapshot) bool { return s.Listeners[0].ForeignLook > 0 })
	syscall.Kill(old, syscall.SIGUSR2)
	until(t, o, "the new arbiter", func(s host.Snapshot) bool { return s.Main.Process.PID == old && len(s.Workers) == 3 })
	// WINCH takes the old one's workers; the pid file still names it.
	eventually(t, "the new arbiter's workers", func() bool {
		for _, w := range mustSnapshot(t, o).Workers {
			if len(childrenOf(t, w.PID)) == 2 {
				return true
			}
		}
		return false
	})
	syscall.Kill(old, syscall.SIGWINCH)
	until(t, o, "the new arbiter as main, with its workers", func(s host.Snapshot) bool { return s.Main.Process.PID != old && healthy(2)(s) })
	syscall.Kill(old, syscall.SIGQUIT)
	eventually(t, "the old arbiter to end", func() bool { return ended(old) })
	seen := mustSnapshot(t, o)
	after := until(t, o, "3 sweeps more", func(s host.Snapshot) bool { return s.Sweep >= seen.Sweep+3 })
	if after.Main.Process.ID != seen.Main.Process.ID || !healthy(2)(after) {
		t.Errorf("main %+v, %d workers; want %v with 2", after.Main, len(after.Workers), seen.Main.Process.ID)
	}
}

// TestStrangers_OneWhoTakesTheWholePort: main's listener is shut down, and
// somebody else binds (vi, then vii).
func TestStrangers_OneWhoTakesTheWholePort(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	byPort := observe(t, host.Target{Port: s.Addr})
	for _, o := range []*host.Observer{o, byPort} {
		until(t, o, "2 workers", healthy(2))
	}
	s.Do("shutdown")
	until(t, o, "an absent listener", func(s host.Snapshot) bool { return !s.Listeners[0].Listening && s.Listeners[0].Held })
	pid, at := intrude(t, s.Addr, "thief")
	for name, o := range map[string]*host.Observer{"by pid file": o, "by port": byPort} {
		got := until(t, o, "a stranger seen twice", func(s host.Snapshot) bool { return s.Listeners[0].ForeignLook >= 2 })
		t.Logf("%s: seen twice %v after the bind", name, host.BootTime()-at)
		if l := got.Listeners[0]; len(l.Owners) != 1 || l.Owners[0].PID != pid || l.Owners[0].Role != checks.RoleForeign || got.Main.Process.PID != s.PID {
			t.Errorf("%s: main %d, owners %+v; want %d, the stranger %d alone", name, got.Main.Process.PID, l.Owners, s.PID, pid)
		}
	}
	// Main dies: its port is still a stranger's, who is no successor.
	s.Stop()
	for name, o := range map[string]*host.Observer{"by pid file": o, "by port": byPort} {
		until(t, o, name+": main gone", func(s host.Snapshot) bool { return s.Main.Status == host.MainGone })
		seen := mustSnapshot(t, o)
		got := until(t, o, "30 sweeps more", func(s host.Snapshot) bool { return s.Sweep >= seen.Sweep+30 })
		if got.Main.Status != host.MainGone || got.Listeners[0].ForeignLook < 2 {
			t.Errorf("%s: main %+v, foreign looks %d; want it gone, and the stranger still seen", name, got.Main, got.Listeners[0].ForeignLook)
		}
	}
}
