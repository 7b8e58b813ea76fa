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
	"github.com/crosscheck-project/crosscheck/checks/host/local"
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
		Main: host.Main{Status: host.MainAlive, Process: host.Process{ID: host.ID{PID: 7}}},
		Listeners: []host.Listener{{Addr: addr, Listening: true, Sockets: 1, Backlog: 128, EverListening: true,
			Owners: []host.Owner{{Process: host.Process{ID: host.ID{PID: 7}, Comm: "nginx", State: checks.ProcAlive, Listens: true}, Role: checks.RoleMain}}}}}}
	c := New(Config{Target: "it", Listener: addr}, src, Deps{})
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
		"one of two held by a stranger": {func(f *fake) {
			l := &f.snap.Listeners[0]
			l.Group = []host.Socket{{Inode: 1, Backlog: 128}, {Inode: 2, Backlog: 128, Foreign: true}}
			l.ForeignLook, l.ForeignSince = 1, 99*time.Second
			l.Owners = append(l.Owners, host.Owner{Process: host.Process{ID: host.ID{PID: 99}, Comm: "nc"}, Role: checks.RoleForeign})
		}, checks.Fail, checks.ReasonForeignOwner, "50 % of tcp 127.0.0.1"},
		"a queue above its backlog": {func(f *fake) {
			f.snap.Listeners[0].Queue = 129
		}, checks.Warn, checks.ReasonQueueStuck, "129 connections to tcp 127.0.0.1"},
		"before the first sweep": {func(f *fake) { f.ok = false }, checks.Blind, checks.ReasonMainUnknown, "has not looked yet"},
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
			c.own.Looker.Wait()
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
		c.own.Looker.Wait()
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
	if _, started := c.own.Looker.Look(time.Now().Add(time.Hour), local.Ask{}); started {
		t.Error("a connection began after Close()")
	}
}

func TestFacts_OfAStranger(t *testing.T) {
	l := host.Listener{Addr: netip.MustParseAddrPort("127.0.0.1:80"), Listening: true, ForeignLook: 2, ForeignSince: 90 * time.Second,
		Group: []host.Socket{{Inode: 1, Foreign: true}, {Inode: 2}, {Inode: 3}, {Inode: 4}}}
	f := Facts(&l, true, 100*time.Second)
	if f.ForeignLooks != 2 || f.ForeignFor != 10*time.Second || f.LostShare != 0.25 {
		t.Errorf("facts %+v, want 2 looks over 10 s, a quarter lost", f)
	}
}

// A queue that does not drain is tried by our own connection, which nobody takes.
func TestLook_AQueueThatDoesNotDrainIsTried(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	now := 100 * time.Second
	addr := netip.MustParseAddrPort(l.Addr().String())
	src := &fake{ok: true, snap: host.Snapshot{Sweep: 1, Dump: 1, At: now, DumpAt: now, Main: host.Main{Status: host.MainAlive, Process: host.Process{ID: host.ID{PID: 7}}},
		Listeners: []host.Listener{{Addr: addr, Listening: true, Sockets: 1, EverListening: true, Group: []host.Socket{{Inode: 1, Backlog: 128}}}}}}
	exact := local.Deps{Accepted: func(_, _ netip.AddrPort) (accepted, known bool) { return false, true }}
	c := New(Config{Target: "it", Listener: addr}, src, Deps{Local: exact})
	defer c.Close()
	c.now = func() time.Duration { return now }
	look := func(queue uint32) checks.Finding {
		now += 100 * time.Millisecond
		src.snap.DumpAt = now
		g := &src.snap.Listeners[0]
		g.Queue, g.Group = queue, []host.Socket{{Inode: 1, Queue: queue, Backlog: 128}}
		return c.Look(context.Background())
	}
	for i, queue := range []uint32{0, 3, 2, 1, 5, 4, 6} { // busy: it rises and falls
		if f := look(queue); f.Suspicious || f.Outcome != checks.Pass || f.Listener.Local != "" || c.own.Needed() {
			t.Errorf("look %d at a busy queue: %+v, want calm", i, f)
		}
	}
	look(7)
	f := look(7)
	if f.Listener.QueueDumps != 4 || f.Listener.QueueFor != 300*time.Millisecond || !c.own.Needed() || f.Suspicious {
		t.Errorf("4 dumps without a fall: %+v, want our own connection under way, and no word yet", f.Listener)
	}
	c.own.Looker.Wait()
	f = look(8)
	if f.Reason != checks.ReasonQueueStuck || !f.Suspicious || !f.Urgent || f.Listener.LocalFails != 1 || f.Listener.Local != checks.LocalUnanswered {
		t.Errorf("unaccepted: %+v, %+v; want a suspicious, urgent fail", f, f.Listener)
	}
	if f = look(8); f.Urgent {
		t.Error("said again at once")
	}
}

func TestLook_AUnixListener(t *testing.T) {
	c, src, _ := newFake(t)
	c.cfg.Path = "/run/app.sock"
	src.snap.Listeners = append(src.snap.Listeners, host.Listener{Path: "/run/app.sock", Listening: true, Sockets: 1, EverListening: true})
	if f := c.Look(context.Background()); f.Outcome != checks.Pass || f.Listener.Listener != "unix /run/app.sock" {
		t.Errorf("Look() = %+v, %+v; want a pass of the unix listener", f, f.Listener)
	}
	c.cfg.Path = "/run/other.sock"
	if f := c.Look(context.Background()); f.Outcome != checks.Blind || !strings.Contains(f.Detail, "does not declare unix /run/other.sock") {
		t.Errorf("Look() = %+v, want blind", f)
	}
}

// A listener that main itself held cannot go because workers die; another main
// may leave it to them.
func TestLook_RemembersThatMainHeldTheListener(t *testing.T) {
	c, src, now := newFake(t)
	held := func() bool {
		*now += 100 * time.Millisecond
		src.snap.At, src.snap.DumpAt = *now, *now
		return c.Look(t.Context()).Listener.MainHeld
	}
	if !held() {
		t.Error("main holds it, and that is not said")
	}
	src.snap.Listeners[0].Listening, src.snap.Listeners[0].Owners = false, nil
	if !held() {
		t.Error("it is gone, and that main held it is forgotten")
	}
	src.snap.Main.Process.ID = host.ID{PID: 4711}
	if held() {
		t.Error("another main is said to have held it")
	}
}
