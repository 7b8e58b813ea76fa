package host_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

func accepted(o *host.Observer, netns string) (n uint64, ok bool) {
	for _, c := range o.Connections() {
		if c.NetNS == netns {
			return c.Accepted, true
		}
	}
	return 0, false
}

func TestConnections_CountsWhatTheHostAcceptsAndTheCPUItCosts(t *testing.T) {
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: 10 * time.Millisecond})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "2 workers", healthy(2))
	before, ok := accepted(o, "host")
	if !ok || len(o.Connections()) != 1 {
		t.Fatalf("Connections() = %+v, want our own namespace alone", o.Connections())
	}
	const n = 20
	for range n {
		c, err := net.Dial("tcp", s.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if after, _ := accepted(o, "host"); after < before+n { // others of this host may add to it
		t.Errorf("%d connections accepted after %d more, before %d", after, n, before)
	}

	if _, known := o.CPU("nobody"); known {
		t.Error("CPU of a target that is none is known")
	}
	// A counter does not fall when workers end, and rises by what they have used.
	last, known := o.CPU("it")
	if !known {
		t.Fatal("CPU() is not known")
	}
	exits := o.Stats().Exits
	s.Do("crash on")
	until(t, o, "20 deaths, and CPU used by the dead", func(host.Snapshot) bool {
		now, known := o.CPU("it")
		if known && now < last {
			t.Errorf("CPU fell from %s to %s", last, now)
		}
		grown := now > last
		last = max(last, now)
		return grown && o.Stats().Exits >= exits+20
	})
}

func TestConnections_OtherNamespacesHaveTheirOwn(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root, to make a network namespace")
	}
	cmd := exec.Command("unshare", "--net", "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	file := filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := observe(t, host.Target{PIDFile: file})
	until(t, o, "a namespace of its own", func(host.Snapshot) bool {
		n, ok := accepted(o, "it")
		return ok && n == 0
	})
	if _, ok := accepted(o, "host"); !ok {
		t.Errorf("Connections() = %+v, want ours as well", o.Connections())
	}
}

func BenchmarkScrape(b *testing.B) {
	s := hosttest.Start(b, hosttest.Options{Workers: 4, Shared: true, Respawn: time.Second})
	o := observe(b, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(b, o, "4 workers", healthy(4))
	for b.Loop() {
		o.Connections()
		o.CPU("it")
	}
}
