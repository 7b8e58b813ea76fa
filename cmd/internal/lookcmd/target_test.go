package lookcmd

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

func TestParseListener(t *testing.T) {
	for s, want := range map[string]local.Listener{
		"127.0.0.1:80": {Addr: netip.MustParseAddrPort("127.0.0.1:80")}, "[::1]:443": {Addr: netip.MustParseAddrPort("[::1]:443")},
		"unix:/run/app.sock": {Path: "/run/app.sock"}, "unix:@app": {Path: "@app"},
	} {
		if got, err := parseListener(s); got != want || err != nil {
			t.Errorf("parseListener(%q) = %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "80", "localhost:80", "unix:", "unix:/", "unix:run/app.sock", "unix:@"} {
		if got, err := parseListener(s); err == nil || got.Valid() {
			t.Errorf("parseListener(%q) = %+v, %v; want an error", s, got, err)
		}
	}
}

func FuzzParseListener(f *testing.F) {
	for _, s := range []string{"127.0.0.1:80", "[::1%lo]:1", "unix:@x", "unix:/a", ":80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseListener(s)
		if (err == nil) != l.Valid() {
			t.Errorf("parseListener(%q) = %+v, %v", s, l, err)
		}
	})
}

func TestWays_BecomeATarget(t *testing.T) {
	tcp := func(s string) local.Listener { return local.Listener{Addr: netip.MustParseAddrPort(s)} }
	addr := netip.MustParseAddrPort
	for name, tt := range map[string]struct {
		ways ways
		want host.Target
	}{
		"a pid file":             {ways{pidFile: "/run/x.pid"}, host.Target{PIDFile: "/run/x.pid"}},
		"a unit in a namespace":  {ways{unit: "x.service", netNS: "web"}, host.Target{Unit: "x.service", NetNS: "web"}},
		"a control group":        {ways{cgroup: "/x"}, host.Target{Cgroup: "/x"}},
		"a program":              {ways{exe: "/x", cmdline: "y"}, host.Target{Exe: "/x", Cmdline: "y"}},
		"the first of two ports": {ways{listeners: []local.Listener{tcp("127.0.0.1:1"), tcp("127.0.0.1:2")}}, host.Target{Port: addr("127.0.0.1:1"), Listeners: []netip.AddrPort{addr("127.0.0.1:2")}}},
		"a pid file, and where it listens": {ways{pidFile: "/p", listeners: []local.Listener{tcp("127.0.0.1:1"), {Path: "/s"}}},
			host.Target{PIDFile: "/p", Listeners: []netip.AddrPort{addr("127.0.0.1:1")}, UnixListeners: []string{"/s"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, done, err := tt.ways.target()
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			tt.want.Name = targetName
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
			if err := (host.Config{Targets: []host.Target{got}}).Validate(); err != nil {
				t.Errorf("the observer refuses it: %v", err)
			}
		})
	}
	for name, w := range map[string]ways{"none": {}, "two": {pidFile: "/p", unit: "x.service"}, "a namespace alone": {netNS: "web"}} {
		if _, _, err := w.target(); err == nil || !strings.Contains(err.Error(), "in one way") {
			t.Errorf("%s: target() = %v, want one way asked for", name, err)
		}
	}
}

func TestWays_AUnixSocketNamesWhoListens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	got, done, err := ways{listeners: []local.Listener{{Path: path}}}.target()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(got.PIDFile)
	if string(b) != strconv.Itoa(os.Getpid()) {
		t.Errorf("main is said to be %q, %v; want ourselves, %d", b, err, os.Getpid())
	}
	done()
	if _, err := os.Stat(got.PIDFile); err == nil {
		t.Error("the pid file was left behind")
	}
	if got, done, err = (ways{listeners: []local.Listener{{Path: path + "x"}}}).target(); err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := os.Stat(got.PIDFile); err == nil {
		t.Error("a main was found of a socket on which nobody listens")
	}
}
