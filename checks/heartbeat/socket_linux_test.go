package heartbeat_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
)

// running is a check with a socket, and what it found so far.
type running struct {
	*heartbeat.Check
	changed chan struct{}
	stop    func()
}

func run(t *testing.T, cfg heartbeat.Config) running {
	t.Helper()
	cfg.Every = time.Minute
	r := running{changed: make(chan struct{}, 1)}
	var err error
	r.Check, err = heartbeat.New(cfg, heartbeat.Deps{Changed: func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	r.stop = func() { cancel(); <-ended }
	t.Cleanup(r.stop)
	return r
}

// until looks until ok.
func (r running) until(t *testing.T, what string, ok func(checks.Finding) bool) checks.Finding {
	t.Helper()
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		f := r.Look(context.Background())
		if ok(f) {
			return f
		}
		select {
		case <-r.changed:
		case <-poll.C:
		case <-deadline:
			t.Fatalf("never %s; last: %+v", what, f)
		}
	}
}

// notify sends a message as sd_notify(3) does, once the socket is there.
func notify(t *testing.T, path, message string, oob []byte) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			continue
		}
		defer conn.Close()
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = syscall.Sendmsg(int(fd), []byte(message), oob, nil, 0) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		return
	}
}

func pass(f checks.Finding) bool { return f.Outcome == checks.Pass }

func TestSocket_TakesWhatANotifyClientSends(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"a file": filepath.Join(t.TempDir(), "beat.sock"), "the abstract namespace": "@" + t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			r := run(t, heartbeat.Config{Socket: path})
			notify(t, path, "READY=1\nSTATUS=serving", nil)
			if f := r.until(t, "a pass", pass); f.Heartbeat.Status != "serving" {
				t.Errorf("status %q, want serving", f.Heartbeat.Status)
			}
			notify(t, path, "nonsense", nil)
			notify(t, path, "STOPPING=1", nil)
			r.until(t, "stopping", func(f checks.Finding) bool { return f.Reason == checks.ReasonStopping })
			if s := r.Stats(); s.Beats != 2 || s.Refused != 1 {
				t.Errorf("stats %+v, want 2 beats, 1 refused", s)
			}
			r.stop()
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("after the end: %v, want no file", err)
			}
		})
	}
}

// The real client: systemd-notify(1), which speaks for its parent, a script.
func TestSocket_CountsWorkersByTheirPids(t *testing.T) {
	t.Parallel()
	client, err := exec.LookPath("systemd-notify")
	if err != nil {
		client = ""
	}
	path := filepath.Join(t.TempDir(), "beat.sock")
	r := run(t, heartbeat.Config{Socket: path, Count: 2})
	notify(t, path, "WATCHDOG=1", nil)
	notify(t, path, "WATCHDOG=1", nil) // the same process
	r.until(t, "one of two", func(f checks.Finding) bool { return f.Heartbeat.Beating == 1 && r.Stats().Beats == 2 })
	if client == "" {
		if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
			t.Fatal("needs systemd-notify")
		}
		t.Skip("needs systemd-notify (Debian: systemd)")
	}
	cmd := exec.Command("sh", "-c", client+" WATCHDOG=1; true")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("systemd-notify: %v\n%s", err, out)
	}
	r.until(t, "two of two", func(f checks.Finding) bool { return f.Outcome == checks.Pass && f.Heartbeat.Beating == 2 })
}

func TestSocket_DescriptorsThatComeAlongAreClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "beat.sock")
	r := run(t, heartbeat.Config{Socket: path})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	notify(t, path, "BARRIER=1", syscall.UnixRights(int(write.Fd())))
	write.Close()
	// sd_notify_barrier(3) waits for this: nobody holds the other end any more.
	_ = read.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := read.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("read = %v, want the end", err)
	}
	notify(t, path, "WATCHDOG=1", nil)
	r.until(t, "a pass", pass)
}

func TestSocket_TheDeadAreReplacedAndTheLivingAreNot(t *testing.T) {
	t.Parallel()
	dead := filepath.Join(t.TempDir(), "beat.sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dead, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close() // and the file stays
	first := run(t, heartbeat.Config{ID: "first", Socket: dead})
	notify(t, dead, "WATCHDOG=1", nil)
	first.until(t, "a pass", pass)

	second := run(t, heartbeat.Config{ID: "second", Socket: dead})
	f := second.until(t, "blind", func(f checks.Finding) bool { return f.Outcome == checks.Blind })
	if !strings.Contains(f.Detail, "another process reads it") {
		t.Errorf("detail %q, want another process named", f.Detail)
	}
	second.stop()
	notify(t, dead, "STATUS=still mine", nil)
	first.until(t, "the status", func(f checks.Finding) bool { return f.Heartbeat.Status == "still mine" })

	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "is no socket", filepath.Join(t.TempDir(), "no", "such"): "no such file"} {
		r := run(t, heartbeat.Config{Socket: path})
		f := r.until(t, "blind", func(f checks.Finding) bool { return f.Outcome == checks.Blind })
		if !strings.Contains(f.Detail, want) || f.Reason != checks.ReasonOwnLimit {
			t.Errorf("%s: %s %q, want own_limit and %q", path, f.Reason, f.Detail, want)
		}
		// A beat over HTTP says that it lives, whatever the socket does.
		if err := r.Beat(heartbeat.Beat{}); err != nil {
			t.Fatal(err)
		}
		r.until(t, "a pass", pass)
		r.stop()
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "x" {
		t.Errorf("the file in the way: %q, %v; want it as it was", b, err)
	}
}

// A client gone mad waits in the kernel; nothing is lost and little is burnt.
func TestSocket_AFloodIsReadSlowly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "beat.sock")
	r := run(t, heartbeat.Config{Socket: path})
	notify(t, path, "WATCHDOG=1", nil)
	r.until(t, "a pass", pass)
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const n = 1500
	for range n {
		if _, err := conn.Write([]byte("WATCHDOG=1")); err != nil {
			t.Fatal(err)
		}
	}
	r.until(t, "all of them", func(checks.Finding) bool { return r.Stats().Beats == n+1 })
	if s := r.Stats(); s.Refused != 0 {
		t.Errorf("stats %+v, want none refused", s)
	}
}
