//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// patience is how long a test waits for what must happen. Chosen: far beyond
// what a starved machine needs; only a failing test waits it out.
const patience = 20 * time.Second

// parentVar makes this test binary a parent that starts a lab of a kind, breaks
// it by a fault ("shared steal"), and waits to be killed.
const parentVar = "CROSSCHECK_LAB_TEST_PARENT"

func TestMain(m *testing.M) {
	if kind := os.Getenv(parentVar); kind != "" {
		beParent(kind)
	}
	os.Exit(m.Run())
}

func beParent(what string) {
	kind, fault, _ := strings.Cut(what, " ")
	l, err := lab.Start(context.Background(), lab.Options{Listener: kind})
	if err == nil {
		err = breakIt(l, fault)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s, _ := l.Status()
	json.NewEncoder(os.Stdout).Encode(parentSays{s, l.ImposterPID()})
	select {}
}

type parentSays struct {
	Lab      lab.Status
	Imposter int
}

func breakIt(l *lab.Lab, fault string) error {
	switch fault {
	case "steal":
		return l.StealPort()
	case "freeze":
		return l.FreezeAll()
	case "spin":
		_, err := l.Spin(1)
		return err
	}
	return nil
}

// bothKinds runs f against a running lab of each kind.
func bothKinds(t *testing.T, f func(t *testing.T, l *lab.Lab)) {
	for _, kind := range []string{lab.Shared, lab.Reuseport} {
		t.Run(kind, func(t *testing.T) { f(t, start(t, lab.Options{Listener: kind})) })
	}
}

// start starts a lab that ends with the test, leaving nothing behind.
func start(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	l, err := lab.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("Start(%+v) = %v", o, err)
	}
	t.Cleanup(func() {
		l.Stop()
		if _, err := os.Stat(l.PIDFile()); !os.IsNotExist(err) {
			t.Errorf("after Stop the pid file %s: %v, want it gone", l.PIDFile(), err)
		}
	})
	return l
}

func status(t *testing.T, l *lab.Lab) lab.Status {
	t.Helper()
	s, err := l.Status()
	if err != nil {
		t.Fatalf("Status() = %v", err)
	}
	return s
}

// await polls until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

func awaitAllReady(t *testing.T, l *lab.Lab) lab.Status {
	t.Helper()
	var s lab.Status
	await(t, "every slot has a ready worker", func() bool {
		s = status(t, l)
		return len(pids(s)) == lab.DefaultWorkers
	})
	return s
}

// pids returns the ready workers' process ids, sorted.
func pids(s lab.Status) []int {
	var out []int
	for _, w := range s.Workers {
		if w.Ready {
			out = append(out, w.PID)
		}
	}
	slices.Sort(out)
	return out
}

// get makes one request on a fresh connection and returns the body.
func get(addr netip.AddrPort, timeout time.Duration) (string, error) {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr.String() + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(body), err
}

func mustServe(t *testing.T, l *lab.Lab) {
	t.Helper()
	body, err := get(l.Addr(), patience)
	if err != nil || !strings.HasPrefix(body, "hello from worker ") {
		t.Errorf("get %s = %q, %v, want a worker's hello", l.Addr(), body, err)
	}
}

// sockets counts a process's open sockets.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("read descriptors: %v", err)
	}
	n := 0
	for _, e := range entries {
		if to, _ := os.Readlink(dir + "/" + e.Name()); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// watch returns a function that waits until all the processes have ended. It
// holds pidfds, so that a reused process id cannot fool it.
func watch(t *testing.T, pids ...int) (ended func()) {
	t.Helper()
	var fds []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("pidfd of %d: %v", pid, err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
	}
	return func() {
		t.Helper()
		for i, fd := range fds {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, int(patience.Milliseconds()))
			for err == unix.EINTR {
				n, err = unix.Poll(poll, int(patience.Milliseconds()))
			}
			if n != 1 || err != nil {
				t.Errorf("process %d has not ended: poll = %d, %v", pids[i], n, err)
			}
		}
	}
}
