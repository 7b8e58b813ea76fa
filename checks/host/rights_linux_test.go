package host_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// An observer without rights over others says what it lacks, never "nobody".
func TestObserver_WithoutRightsOwnersAreUnknown(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root, to start an observer that is not")
	}
	s := readable(t, hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second}))
	asNobody(t, "TestUnprivileged", s)
}

// readable lets anybody read the pid file.
func readable(t *testing.T, s *hosttest.Server) *hosttest.Server {
	t.Helper()
	for path := s.PIDFile; path != os.TempDir() && len(path) > 1; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// asNobody runs one of the tests below as a user without rights (uid 65534 on
// Debian), after a shell command in a mount namespace of its own.
func asNobody(t *testing.T, test string, s *hosttest.Server, prepare ...string) {
	t.Helper()
	script := strings.Join(append(prepare, `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@"`), " && ")
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, copySelf(t), "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), "HT_PIDFILE="+s.PIDFile, "HT_ADDR="+s.Addr.String())
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func TestObserver_UnderHidepidItIsBlind(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root, to mount /proc with hidepid")
	}
	s := readable(t, hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second}))
	asNobody(t, "TestHidden", s, "mount -t proc -o hidepid=2 proc /proc")
}

// TestHidden is the other half of the test above.
func TestHidden(t *testing.T) {
	if os.Getenv("HT_PIDFILE") == "" {
		return // only as a child
	}
	o := observe(t, host.Target{PIDFile: os.Getenv("HT_PIDFILE"), Listeners: []netip.AddrPort{netip.MustParseAddrPort(os.Getenv("HT_ADDR"))}})
	s := until(t, o, "blindness", func(s host.Snapshot) bool { return s.Trouble.Reason == "no_permission" })
	if !strings.Contains(s.Trouble.Detail, "hidepid") || s.Main.Status == host.MainGone || !s.Listeners[0].Listening {
		t.Errorf("trouble %+v, main %+v, listener %+v; want hidepid named, main not gone, still listening", s.Trouble, s.Main, s.Listeners[0])
	}
}

// TestUnprivileged is the other half of the test above, as another user.
func TestUnprivileged(t *testing.T) {
	if os.Getenv("HT_PIDFILE") == "" {
		return // only as a child
	}
	addr := netip.MustParseAddrPort(os.Getenv("HT_ADDR"))
	o := observe(t, host.Target{PIDFile: os.Getenv("HT_PIDFILE"), Listeners: []netip.AddrPort{addr}})
	s := until(t, o, "a listener", func(s host.Snapshot) bool { return s.Listeners[0].Listening && s.Main.Status == host.MainAlive })
	if l := s.Listeners[0]; len(l.Owners) != 0 || !strings.Contains(l.OwnersUnknown, "CAP_SYS_PTRACE") || len(s.Workers) != 2 {
		t.Errorf("owners %+v, unknown because %q, %d workers; want none, CAP_SYS_PTRACE, 2", l.Owners, l.OwnersUnknown, len(s.Workers))
	}
	o = observe(t, host.Target{Port: addr})
	until(t, o, "blindness that names the right", func(s host.Snapshot) bool {
		return s.Trouble.Reason == "no_permission" && strings.Contains(s.Trouble.Detail, "CAP_SYS_PTRACE")
	})
}
