package portcheck

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// fake hands out one snapshot and a clock.
type fake struct {
	snap host.Snapshot
	ok   bool
}

func (f *fake) Snapshot(string) (host.Snapshot, bool) { return f.snap, f.ok }

// refused is a loopback address on which nobody listens.
func refused(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func newFake(t *testing.T) (*Check, *fake, *time.Duration) {
	addr := refused(t)
	now := 100 * time.Second
	src := &fake{ok: true, snap: host.Snapshot{Target: "it", Sweep: 1, Dump: 1, At: now, DumpAt: now,
		Main: host.Main{Status: host.MainAlive},
		Listeners: []host.Listener{{Addr: addr, Listening: true, Sockets: 1, Backlog: 128, EverListening: true,
			Owners: []host.Owner{{Process: host.Process{ID: host.ID{PID: 7}, Comm: "nginx", State: checks.ProcAlive, Listens: true}, Role: checks.RoleMain}}}}}}
	c := New(Config{Target: "it", Listener: addr}, src)
	c.now = func() time.Duration { return now }
	return c, src, &now
}

func TestLook_Outcomes(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(s *fake)
		outcome checks.Outcome
		reason  checks.Reason
		detail  string
	}{
		"listening":                   {func(*fake) {}, checks.Pass, "", "held by main nginx 7"},
		"listening, owner unreadable": {func(f *fake) { f.snap.Listeners[0].Owners, f.snap.FDsUnknown = nil, "needs CAP_SYS_PTRACE" }, checks.Pass, "", "owner unknown: needs CAP_SYS_PTRACE"},
		"closed":                      {func(f *fake) { f.snap.Listeners[0].Listening = false }, checks.Fail, checks.ReasonNotListening, "nobody listens on tcp 127.0.0.1"},
		"shut down and held":          {func(f *fake) { l := &f.snap.Listeners[0]; l.Listening, l.Held = false, true }, checks.Fail, checks.ReasonNotListening, "shut down, not closed"},
		"before the first sweep":      {func(f *fake) { f.ok = false }, checks.Blind, checks.ReasonMainUnknown, "has not looked yet"},
		"sockets cannot be listed": {func(f *fake) {
			f.snap.DumpTrouble = host.Trouble{Reason: checks.ReasonNoPermission, Detail: "sock_diag"}
		}, checks.Blind, checks.ReasonNoPermission, "sock_diag"},
		"an observer that hangs":       {func(f *fake) { f.snap.DumpAt -= 3 * time.Second }, checks.Blind, checks.ReasonOwnLimit, "3s ago"},
		"a listener nobody declared":   {func(f *fake) { f.snap.Listeners = nil }, checks.Blind, checks.ReasonMainUnknown, "does not declare"},
		"main unknown, but it listens": {func(f *fake) { f.snap.Main = host.Main{} }, checks.Pass, "", "held by"},
	} {
		t.Run(name, func(t *testing.T) {
			c, src, _ := newFake(t)
			tt.change(src)
			f := c.Look(context.Background())
			c.looker.Wait()
			if f.Outcome != tt.outcome || f.Reason != tt.reason || !strings.Contains(f.Detail, tt.detail) {
				t.Errorf("Look() = %s %s %q, want %s %s %q", f.Outcome, f.Reason, f.Detail, tt.outcome, tt.reason, tt.detail)
			}
			if f.Outcome == checks.Pass && (f.Urgent || f.Suspicious) {
				t.Errorf("Look() = %+v: a pass that never failed is neither urgent nor suspicious", f)
			}
		})
	}
}

func TestLook_AnEndedContextIsShutdownNotFailure(t *testing.T) {
	c, _, _ := newFake(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f := c.Look(ctx); f.Outcome != checks.Blind || f.Reason != checks.ReasonShuttingDown {
		t.Errorf("Look() = %+v, want blind, shutting down", f)
	}
}

func TestLook_IsUrgentWhenItMattersAndMakesItsOwnConnection(t *testing.T) {
	c, src, now := newFake(t)
	l := &src.snap.Listeners[0]
	l.Listening = false
	for i, step := range []struct {
		after  time.Duration
		absent int
		urgent bool
		local  checks.LocalLook
		why    string
	}{
		{0, 1, true, "", "first dump without it"},
		{25 * time.Millisecond, 2, true, checks.LocalRefused, "our own connection was refused"},
		{25 * time.Millisecond, 2, false, checks.LocalRefused, "nothing new"},
		{25 * time.Millisecond, 3, true, checks.LocalRefused, "third dump"},
		{25 * time.Millisecond, 4, false, checks.LocalRefused, "nothing new"},
		{250 * time.Millisecond, 14, true, checks.LocalRefused, "a quarter of a second has passed"},
		{25 * time.Millisecond, 15, false, checks.LocalRefused, "nothing new"},
	} {
		*now += step.after
		l.AbsentDumps, src.snap.DumpAt = step.absent, *now
		f := c.Look(context.Background())
		c.looker.Wait()
		if f.Urgent != step.urgent || !f.Suspicious || f.Listener.Local != step.local {
			t.Errorf("look %d (%s): urgent %t, suspicious %t, local %q; want %t, true, %q", i, step.why, f.Urgent, f.Suspicious, f.Listener.Local, step.urgent, step.local)
		}
	}
	l.Listening, l.AbsentDumps = true, 0
	if f := c.Look(context.Background()); !f.Urgent || f.Suspicious || f.Listener.Local != "" {
		t.Errorf("back: %+v, want urgent once, not suspicious, no local look", f)
	}
	if f := c.Look(context.Background()); f.Urgent {
		t.Error("a second pass is urgent")
	}
}

func TestClose_EndsOurOwnConnectionAndLetsNoneBegin(t *testing.T) {
	c, src, _ := newFake(t)
	src.snap.Listeners[0].Listening = false
	c.Look(context.Background())
	if err := c.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if _, started := c.looker.Look(time.Now().Add(time.Hour)); started {
		t.Error("a connection began after Close()")
	}
}
