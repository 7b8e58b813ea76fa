package serverstatus_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// server is a running one.
type server struct {
	t    *testing.T
	dir  string
	main *os.Process
}

// start starts a server, or skips if it is not installed.
func start(t *testing.T, dir, binary string, args ...string) *server {
	t.Helper()
	path, err := exec.LookPath(binary)
	if err != nil {
		why := binary + " is not installed"
		if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, main: cmd.Process}
	t.Cleanup(func() {
		children := s.children()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, pid := range children { // stopped ones do not see their main go
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			out, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("%s said: %s", binary, out)
		}
	})
	return s
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// children are the processes below main, newest last.
func (s *server) children() []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.main.Pid))
	var all []int
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// freeze stops processes until the test ends. It waits until they are: one that is
// woken to be stopped may still take a connection.
func (s *server) freeze(pids ...int) {
	s.t.Helper()
	if len(pids) == 0 {
		s.t.Fatal("nobody to freeze")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			s.t.Fatalf("stop %d: %v", pid, err)
		}
	}
	for _, pid := range pids {
		until(s.t, fmt.Sprintf("process %d stopped", pid), func() bool {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return strings.Contains(string(stat), ") T ")
		})
	}
}

// until polls until ok, for servers take a moment to start or to notice.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 20s", what)
		}
	}
}

// untilRead reads until ok.
func untilRead(t *testing.T, src serverstatus.Source, what string, ok func(serverstatus.Status) bool) serverstatus.Status {
	t.Helper()
	var last serverstatus.Status
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("last: %+v, %v", last, err)
		}
	}()
	until(t, what, func() bool {
		last, err = src.Read(t.Context())
		return err == nil && ok(last)
	})
	t.Log(last.Text)
	return last
}

// wantNoAnswer: an in-band page shares the workers' fate.
func wantNoAnswer(t *testing.T, src serverstatus.Source) {
	t.Helper()
	if s, err := readOnce(t, src, 300*time.Millisecond); !errors.Is(err, serverstatus.ErrNoAnswer) {
		t.Errorf("Read with all workers frozen: %+v, %v, want ErrNoAnswer", s, err)
	} else {
		t.Log(err)
	}
}

// connect opens and closes connections, a byte each.
func connect(t *testing.T, addr string, n int) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Read(make([]byte, 1))
		c.Close()
	}
}
