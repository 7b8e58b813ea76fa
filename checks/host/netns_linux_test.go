package host_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// namespace makes a network namespace for a test.
func namespace(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		without(t, "needs root, to make a network namespace")
	}
	ip := need(t, "ip")
	name := fmt.Sprintf("cctest-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)
	if out, err := exec.Command(ip, "netns", "add", name).CombinedOutput(); err != nil {
		without(t, fmt.Sprintf("network namespaces may not be made: %v: %s", err, out))
	}
	t.Cleanup(func() { exec.Command(ip, "netns", "del", name).Run() })
	if out, err := exec.Command(ip, "-n", name, "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link: %v: %s", err, out)
	}
	return name
}

func TestNetNS_ListenersAreThoseOfMainsNamespace(t *testing.T) {
	ns := namespace(t)
	n := startNginxIn(t, ns, "")
	// In our own namespace the same address is somebody else's.
	here, err := net.Listen("tcp", n.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	before := openFDs(t)
	o := observe(t, host.Target{PIDFile: n.pidFile(), Listeners: []netip.AddrPort{n.addr}})
	s := until(t, o, "2 workers", healthy(2))
	if l := s.Listeners[0]; l.Sockets != 1 || l.ForeignLook != 0 || len(l.Owners) != 3 || s.DumpTrouble != (host.Trouble{}) {
		t.Errorf("listener %+v, trouble %+v; want one socket of nginx's", l, s.DumpTrouble)
	}
	named := observe(t, host.Target{PIDFile: n.pidFile(), Listeners: []netip.AddrPort{n.addr}, NetNS: ns})
	until(t, named, "the same by the namespace's name", healthy(2))

	var c net.Conn
	dial := func() (err error) { c, err = net.Dial("tcp", n.addr.String()); return err }
	if err := o.InNamespace("it", dial); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "our connection to be accepted", func() bool {
		accepted, known := o.Accepted("it", addr(t, c.LocalAddr()), addr(t, c.RemoteAddr()))
		return accepted && known
	})
	if _, err := fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if k, _ := c.Read(b); !strings.HasPrefix(string(b[:k]), "HTTP/1.1 200") {
		t.Errorf("answer %q, want nginx's", b[:k])
	}
	c.Close()
	failing := errors.New("so")
	if err := o.InNamespace("it", func() error { return failing }); !errors.Is(err, failing) {
		t.Errorf("InNamespace() = %v, want %v", err, failing)
	}
	if err := o.InNamespace("another", dial); err == nil {
		t.Error("InNamespace() of an unknown target = nil, want an error")
	}

	n.signal(s.Main.Process.PID, unix.SIGTERM)
	until(t, o, "the namespace to be left", func(s host.Snapshot) bool {
		return s.Main.Status == host.MainGone && !s.Listeners[0].Listening
	})
	// Two observers have about 14 each: their own, and what they keep open of main
	// and its workers. One socket more per dump would be hundreds.
	if during := openFDs(t) - before; during > 50 {
		t.Errorf("%d descriptors more than before", during)
	}
	// Our threads are all at home.
	home, _ := os.Readlink("/proc/self/ns/net")
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && at != home {
			t.Errorf("thread %s is in %s, want %s", task.Name(), at, home)
		}
	}
}

func TestNetNS_WithoutTheRightItIsBlindAndNamesIt(t *testing.T) {
	ns := namespace(t)
	n := startNginxIn(t, ns, "")
	for path := n.pidFile(); path != os.TempDir() && len(path) > 1; path = path[:strings.LastIndex(path, "/")] {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &hosttest.Server{PIDFile: n.pidFile(), Addr: n.addr}
	t.Setenv("HT_NETNS", ns)
	asNobody(t, "TestElsewhere", s)
}

// TestElsewhere is the other half of the test above, as another user.
func TestElsewhere(t *testing.T) {
	ns := os.Getenv("HT_NETNS")
	if ns == "" {
		return // only as a child
	}
	target := host.Target{PIDFile: os.Getenv("HT_PIDFILE"), Listeners: []netip.AddrPort{netip.MustParseAddrPort(os.Getenv("HT_ADDR"))}}
	o := observe(t, target)
	until(t, o, "blindness that names CAP_SYS_PTRACE", func(s host.Snapshot) bool {
		return s.DumpTrouble.Reason == "no_permission" && strings.Contains(s.DumpTrouble.Detail, "CAP_SYS_PTRACE")
	})
	target.NetNS = ns
	o = observe(t, target)
	s := until(t, o, "blindness that names CAP_SYS_ADMIN", func(s host.Snapshot) bool {
		return s.DumpTrouble.Reason == "no_permission" && strings.Contains(s.DumpTrouble.Detail, "CAP_SYS_ADMIN")
	})
	if l := s.Listeners[0]; l.Listening || l.AbsentDumps != 0 {
		t.Errorf("listener %+v, want nothing counted", l)
	}
}

func TestUnixListeners_AreSeenWithTheirQueues(t *testing.T) {
	t.Parallel()
	n := startNginx(t, "listen unix:DIR/n.sock; listen unix:DIR/two.sock backlog=7;")
	path := n.dir + "/n.sock"
	abstract := fmt.Sprintf("@crosscheck-test-%d", os.Getpid())
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := observe(t, host.Target{PIDFile: n.pidFile(), UnixListeners: []string{path, n.dir + "/two.sock", abstract, "/nonexistent"}})
	s := until(t, o, "2 workers that listen", func(s host.Snapshot) bool {
		return len(s.Workers) == 2 && len(s.Listeners[0].Owners) == 3 && s.Workers[0].Listens && s.Listeners[2].ForeignLook > 1
	})
	one, _ := s.UnixListener(path)
	two, _ := s.UnixListener(n.dir + "/two.sock")
	three, _ := s.UnixListener(abstract)
	four, ok := s.UnixListener("/nonexistent")
	if !one.Listening || one.Backlog != 511 || two.Backlog != 7 || !three.Group[0].Foreign || four.Listening || !ok {
		t.Errorf("listeners = %+v, want backlogs 511 and 7, the third ours, the last absent", s.Listeners)
	}
	c, err := net.Dial("unix", abstract) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, o, "a queue", func(s host.Snapshot) bool { return s.Listeners[2].Queue == 1 && s.Listeners[2].Group[0].Queue == 1 })
}

func TestListeners_OfBothFamilies(t *testing.T) {
	t.Parallel()
	n := startNginx(t, "listen [::]:PORT ipv6only=off;")
	v4 := netip.AddrPortFrom(netip.IPv4Unspecified(), n.addr.Port())
	v6 := netip.AddrPortFrom(netip.IPv6Unspecified(), n.addr.Port())
	o := observe(t, host.Target{PIDFile: n.pidFile(), Listeners: []netip.AddrPort{v4, v6}})
	s := until(t, o, "both", func(s host.Snapshot) bool {
		return len(s.Listeners[0].Owners) == 3 && len(s.Listeners[1].Owners) == 3
	})
	if s.Listeners[0].Group[0].Inode != s.Listeners[1].Group[0].Inode {
		t.Errorf("listeners = %+v, want one socket for both", s.Listeners)
	}
}
