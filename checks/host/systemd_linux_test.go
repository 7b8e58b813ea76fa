package host_test

import (
	"bufio"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// manager is a stand-in for systemd on a bus of its own: one unit whose
// properties the test sets.
type manager struct {
	conn *dbus.Conn
	mu   sync.Mutex // guards the fields below
	prop map[string]any
	gets int
}

const unitPath = dbus.ObjectPath("/org/freedesktop/systemd1/unit/web_2eservice")

func (m *manager) Subscribe() *dbus.Error { return nil }

func (m *manager) LoadUnit(name string) (dbus.ObjectPath, *dbus.Error) {
	if name != "web.service" {
		return "", dbus.MakeFailedError(os.ErrNotExist)
	}
	return unitPath, nil
}

func (m *manager) Get(of, name string) (dbus.Variant, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	v, ok := m.prop[strings.TrimPrefix(of, "org.freedesktop.systemd1.")+"."+name]
	if !ok {
		return dbus.Variant{}, dbus.MakeFailedError(os.ErrNotExist)
	}
	return dbus.MakeVariant(v), nil
}

// set changes the unit and tells of it as systemd does.
func (m *manager) set(t *testing.T, pid int, active, sub, result string) {
	t.Helper()
	m.mu.Lock()
	m.prop = map[string]any{"Service.MainPID": uint32(pid), "Service.Result": result, "Unit.ActiveState": active, "Unit.SubState": sub}
	m.mu.Unlock()
	if err := m.conn.Emit(unitPath, "org.freedesktop.DBus.Properties.PropertiesChanged", "org.freedesktop.systemd1.Service", map[string]dbus.Variant{}, []string{"MainPID"}); err != nil {
		t.Fatal(err)
	}
}

// startBus runs a bus with a manager on it and returns its address.
func startBus(t *testing.T) (address string, m *manager, kill func()) {
	t.Helper()
	exe := need(t, "dbus-daemon")
	dir := t.TempDir()
	conf := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(conf, []byte(`<busconfig><type>session</type><listen>unix:path=`+dir+`/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "--config-file="+conf, "--nofork", "--nopidfile", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(line)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m = &manager{conn: conn}
	for path, iface := range map[dbus.ObjectPath]string{"/org/freedesktop/systemd1": "org.freedesktop.systemd1.Manager", unitPath: "org.freedesktop.DBus.Properties"} {
		if err := conn.Export(m, path, iface); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("RequestName() = %v, %v", r, err)
	}
	return address, m, kill
}

func observeUnit(t *testing.T, bus string, target host.Target) *host.Observer {
	t.Helper()
	target.Name = "it"
	o, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{SystemBus: bus, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
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

func TestUnit_MainIsWhatSystemdSays(t *testing.T) {
	t.Parallel()
	bus, m, kill := startBus(t)
	first := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	m.set(t, first.PID, "active", "running", "success")
	o := observeUnit(t, bus, host.Target{Unit: "web.service", Listeners: []netip.AddrPort{first.Addr}})
	until(t, o, "the unit's main with 2 workers", func(s host.Snapshot) bool { return s.Main.Process.PID == first.PID && healthy(2)(s) })

	// Restarted: another main, told at once.
	second := hosttest.Start(t, hosttest.Options{Workers: 1, Shared: true, Respawn: time.Second})
	m.set(t, second.PID, "active", "running", "success")
	until(t, o, "the second main", func(s host.Snapshot) bool { return s.Main.Process.PID == second.PID && len(s.Workers) == 1 })

	second.Stop()
	m.set(t, 0, "activating", "auto-restart", "signal")
	until(t, o, "main gone, to be restarted", func(s host.Snapshot) bool {
		return s.Main.Status == host.MainGone && strings.Contains(s.Main.Why, "activating (auto-restart, signal)") && !s.GaveUp
	})
	m.set(t, 0, "failed", "failed", "start-limit-hit")
	until(t, o, "that systemd gave up", func(s host.Snapshot) bool { return s.GaveUp && s.Main.Status == host.MainGone })
	m.set(t, first.PID, "active", "running", "success")
	until(t, o, "main back", func(s host.Snapshot) bool { return s.Main.Process.PID == first.PID && !s.GaveUp })

	kill() // the bus goes: what was known stands
	eventually(t, "the bus to go", func() bool { return !m.conn.Connected() })
	seen, _ := o.Snapshot("it")
	s := until(t, o, "2 sweeps more", func(s host.Snapshot) bool { return s.Sweep >= seen.Sweep+2 })
	if s.Main.Process.PID != first.PID || s.Main.Status != host.MainAlive {
		t.Errorf("main = %+v, want the one found before, alive", s.Main)
	}
}

func TestUnit_WithoutASystemdTheControlGroupIsAsked(t *testing.T) {
	t.Parallel()
	o := observeUnit(t, "unix:path=/nonexistent", host.Target{Unit: "crosscheck-no-such.service"})
	until(t, o, "that there is no such group", func(s host.Snapshot) bool {
		return s.Main.Status == host.MainUnknown && strings.Contains(s.Main.Why, "no control group")
	})
}
