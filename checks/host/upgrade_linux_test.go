package host_test

import (
	"context"
	"fmt"
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
)

// need skips a test without a program, or fails it where nothing may be skipped.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		without(t, program+" is not installed")
	}
	return path
}

func without(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// nginx is a real one, a daemon with two workers.
type nginx struct {
	t        *testing.T
	exe, dir string
	addr     netip.AddrPort
}

func startNginx(t *testing.T, listen string) *nginx { return startNginxIn(t, "", listen) }

// startNginxIn starts it in a network namespace.
func startNginxIn(t *testing.T, netns, listen string) *nginx {
	t.Helper()
	n := &nginx{t: t, exe: need(t, "nginx"), dir: t.TempDir(), addr: freeAddr(t)}
	if listen == "" {
		listen = "listen " + n.addr.String() + ";"
	}
	conf := "daemon on; worker_processes 2; pid " + n.pidFile() + "; error_log " + n.dir + "/error.log;\nevents { worker_connections 64; }\nhttp { access_log off;\n"
	for _, d := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += d + "_temp_path " + n.dir + "/" + d + ";\n"
	}
	conf += "server { " + strings.NewReplacer("DIR", n.dir, "PORT", strconv.Itoa(int(n.addr.Port()))).Replace(listen) + " location / { return 200 ok; } } }\n"
	if err := os.WriteFile(n.dir+"/nginx.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	start := exec.Command(n.exe, "-e", n.dir+"/error.log", "-c", n.dir+"/nginx.conf")
	if netns != "" {
		start = exec.Command(need(t, "ip"), append([]string{"netns", "exec", netns}, start.Args...)...)
	}
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("start nginx: %v: %s", err, out)
	}
	t.Cleanup(func() {
		for _, f := range []string{n.pidFile(), n.pidFile() + ".oldbin"} {
			b, _ := os.ReadFile(f)
			if pid, _ := strconv.Atoi(strings.TrimSpace(string(b))); pid > 1 {
				syscall.Kill(pid, syscall.SIGTERM)
				eventually(t, "nginx to end", func() bool { return ended(pid) })
			}
		}
	})
	return n
}

func (n *nginx) pidFile() string { return filepath.Join(n.dir, "nginx.pid") }

func (n *nginx) signal(pid int, sig syscall.Signal) {
	n.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		n.t.Fatalf("kill -%v %d: %v", sig, pid, err)
	}
}

// ended reports whether a process is gone, or a zombie that nobody reaps.
func ended(pid int) bool {
	st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(st), ") Z ")
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

// freeAddr is a loopback address nobody listens on now.
func freeAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*syscall.SockaddrInet4).Port))
}

// TestUpgrade_OfNginxLosesNeitherMainNorWorkers: USR2 starts a new main as a
// child of the old one, WINCH takes the old one's workers, QUIT ends it.
func TestUpgrade_OfNginxLosesNeitherMainNorWorkers(t *testing.T) {
	for name, find := range map[string]func(*nginx) host.Target{
		"by pid file":     func(n *nginx) host.Target { return host.Target{PIDFile: n.pidFile()} },
		"by port":         func(n *nginx) host.Target { return host.Target{Port: n.addr} },
		"by command line": func(n *nginx) host.Target { return host.Target{Exe: n.exe, Cmdline: "master process.*" + n.dir} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNginx(t, "")
			target := find(n)
			target.Listeners = []netip.AddrPort{n.addr}
			o := observe(t, target)
			old := until(t, o, "2 workers", healthy(2)).Main.Process.PID
			watchNever(t, o, "a gone main, a stranger or nobody who listens", func(s host.Snapshot) bool {
				return s.Main.Status != host.MainAlive || s.Listeners[0].ForeignLook > 0 || len(s.Listeners[0].Owners) == 0
			})
			n.signal(old, syscall.SIGUSR2)
			eventually(t, "the new main's pid file", func() bool {
				_, err := os.Stat(n.pidFile() + ".oldbin")
				b, err2 := os.ReadFile(n.pidFile())
				return err == nil && err2 == nil && len(b) > 1
			})
			b, _ := os.ReadFile(n.pidFile())
			successor, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			if successor == old {
				t.Fatalf("the pid file names the old main %d", old)
			}
			n.signal(old, syscall.SIGWINCH)
			until(t, o, "the new main with its 2 workers, while the old one lives on without", func(s host.Snapshot) bool {
				return s.Main.Process.PID == successor && healthy(2)(s)
			})
			n.signal(old, syscall.SIGQUIT)
			eventually(t, "the old main to end", func() bool { return ended(old) })
			seen, _ := o.Snapshot("it")
			s := until(t, o, "2 sweeps more", func(s host.Snapshot) bool { return s.Sweep >= seen.Sweep+2 })
			if s.Main.Process.PID != successor || !healthy(2)(s) {
				t.Errorf("main %+v, %d workers; want %d alive with 2", s.Main, len(s.Workers), successor)
			}
			for _, e := range s.Events {
				if e.Kind == host.MainDeath {
					t.Errorf("event %+v, want no death of a main", e)
				}
			}
		})
	}
}

// watchNever fails the test if a snapshot from now on satisfies bad.
func watchNever(t *testing.T, o *host.Observer, what string, bad func(host.Snapshot) bool) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for last := uint64(0); ; {
			if s, _ := o.Snapshot("it"); s.Sweep != last && bad(s) {
				last = s.Sweep
				t.Errorf("saw %s: main %+v, listener %+v", what, s.Main, s.Listeners[0])
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestMain_GoneLeavesWorkersThatAreNoMain: workers that a dead main left behind
// hold its port and run its program, and are not taken for its successor.
func TestMain_GoneLeavesWorkersThatAreNoMain(t *testing.T) {
	n := startNginx(t, "")
	o := observe(t, host.Target{Port: n.addr})
	before := until(t, o, "2 workers", healthy(2))
	n.signal(before.Main.Process.PID, syscall.SIGKILL)
	t.Cleanup(func() {
		for _, w := range before.Workers {
			syscall.Kill(w.PID, syscall.SIGKILL)
		}
	})
	until(t, o, "main gone, 2 workers that listen", func(s host.Snapshot) bool {
		return s.Main.Status == host.MainGone && len(s.Workers) == 2 && s.Workers[0].Listens && s.Workers[0].State == checks.ProcAlive
	})
	seen, _ := o.Snapshot("it")
	s := until(t, o, "50 sweeps more", func(s host.Snapshot) bool { return s.Sweep >= seen.Sweep+50 })
	if s.Main.Status != host.MainGone || s.Main.Process.ID != before.Main.Process.ID || s.Listeners[0].ForeignLook > 0 {
		t.Errorf("main %+v, foreign looks %d; want it gone, and none", s.Main, s.Listeners[0].ForeignLook)
	}
}
