package workercheck

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

type fake struct {
	snap host.Snapshot
	ok   bool
}

func (f *fake) Snapshot(string) (host.Snapshot, bool) { return f.snap, f.ok }

// newFake is a main of 90 s with two workers of 80 s, swept once.
func newFake() (*Check, *fake, *time.Duration) {
	now := 100 * time.Second
	worker := func(pid int) host.Process {
		return host.Process{ID: host.ID{PID: pid, StartTicks: 2000}, State: checks.ProcAlive, Born: 20 * time.Second, Age: 80 * time.Second}
	}
	src := &fake{ok: true, snap: host.Snapshot{Target: "it", Sweep: 1, At: now,
		Main:    host.Main{Status: host.MainAlive, LastAlive: now, Process: host.Process{ID: host.ID{PID: 7, StartTicks: 1000}, State: checks.ProcAlive, Born: 10 * time.Second, Age: 90 * time.Second}},
		Workers: []host.Process{worker(8), worker(9)}}}
	c := New(Config{Target: "it"}, src, Deps{})
	c.now = func() time.Duration { return now }
	return c, src, &now
}

func TestLook_Outcomes(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(f *fake)
		outcome    checks.Outcome
		reason     checks.Reason
		detail     string
		suspicious bool
	}{
		"all serve":      {func(*fake) {}, checks.Pass, "", "2 workers serve under main 7", false},
		"one is stopped": {func(f *fake) { f.snap.Workers[1].State = checks.ProcStopped }, checks.Warn, checks.ReasonWorkersStuck, "1 of 2 workers serve; worker 9 is stopped for 0s", true},
		"all are stopped": {func(f *fake) {
			f.snap.Workers[0].State, f.snap.Workers[1].State = checks.ProcStopped, checks.ProcStopped
		}, checks.Fail, checks.ReasonNoServingWorker, "main 7 is alive, 0 of 2 workers serve", true},
		"main is stopped": {func(f *fake) { f.snap.Main.Process.State = checks.ProcStopped }, checks.Warn, checks.ReasonMainStuck, "main 7 is stopped; 2 workers serve without it", true},
		"main is gone": {func(f *fake) {
			f.snap.Main.Status, f.snap.Main.Why, f.snap.Workers = host.MainGone, "pid file lies", nil
		}, checks.Fail, checks.ReasonMainGone, "main process is gone: pid file lies", true},
		"main was never found":     {func(f *fake) { f.snap.Main = host.Main{Why: "no pid file"} }, checks.Blind, checks.ReasonMainUnknown, "no pid file", false},
		"before the first sweep":   {func(f *fake) { f.ok = false }, checks.Blind, checks.ReasonMainUnknown, "has not looked yet", false},
		"no rights":                {func(f *fake) { f.snap.Trouble = host.Trouble{Reason: checks.ReasonNoPermission, Detail: "hidepid"} }, checks.Blind, checks.ReasonNoPermission, "hidepid", false},
		"an observer that hangs":   {func(f *fake) { f.snap.At -= time.Minute }, checks.Blind, checks.ReasonOwnLimit, "1m0s ago", false},
		"a main that only started": {func(f *fake) { f.snap.Main.Process.StartTicks, f.snap.Workers = 9999, nil; f.snap.Main.Reaped = true }, checks.Warn, checks.ReasonFewerWorkers, "no worker has served yet", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, src, now := newFake()
			c.Look(context.Background())
			*now += time.Second
			src.snap.Sweep++
			src.snap.At = *now
			tt.change(src)
			f := c.Look(context.Background())
			if f.Outcome != tt.outcome || f.Reason != tt.reason || !strings.Contains(f.Detail, tt.detail) || f.Suspicious != tt.suspicious {
				t.Errorf("Look() = %s %s %q suspicious %t, want %s %s %q suspicious %t", f.Outcome, f.Reason, f.Detail, f.Suspicious, tt.outcome, tt.reason, tt.detail, tt.suspicious)
			}
			if (f.Outcome == checks.Blind) != (f.Workers == nil) {
				t.Errorf("outcome %s with facts %+v", f.Outcome, f.Workers)
			}
		})
	}
}

func TestLook_AnEndedContextIsShutdownNotFailure(t *testing.T) {
	c, _, _ := newFake()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f := c.Look(ctx); f.Outcome != checks.Blind || f.Reason != checks.ReasonShuttingDown {
		t.Errorf("Look() = %+v, want blind, shutting down", f)
	}
}

func TestLook_IsUrgentWhenItMatters(t *testing.T) {
	c, src, now := newFake()
	if f := c.Look(context.Background()); f.Urgent {
		t.Error("a calm first look is urgent")
	}
	stop := func(state checks.ProcState) {
		src.snap.Workers = append([]host.Process{}, src.snap.Workers...)
		src.snap.Workers[0].State, src.snap.Workers[1].State = state, state
	}
	for i, step := range []struct {
		after  time.Duration
		state  checks.ProcState
		urgent bool
		why    string
	}{
		{25 * time.Millisecond, checks.ProcStopped, true, "nobody serves"},
		{25 * time.Millisecond, checks.ProcStopped, true, "second look without one"},
		{25 * time.Millisecond, checks.ProcStopped, false, "nothing new"},
		{75 * time.Millisecond, checks.ProcStopped, true, "seen stopped 100 ms apart"},
		{200 * time.Millisecond, checks.ProcStopped, false, "nothing new yet"},
		{50 * time.Millisecond, checks.ProcStopped, true, "a quarter of a second since the last"},
		{25 * time.Millisecond, checks.ProcAlive, true, "all well again"},
		{25 * time.Millisecond, checks.ProcAlive, false, "calm"},
	} {
		*now += step.after
		src.snap.Sweep++
		src.snap.At = *now
		stop(step.state)
		if f := c.Look(context.Background()); f.Urgent != step.urgent {
			t.Errorf("look %d (%s): urgent %t, want %t", i, step.why, f.Urgent, step.urgent)
		}
	}
}

func TestConclude_SaysHowReplacementsDied(t *testing.T) {
	f := Conclude(&checks.WorkerFacts{EverServed: true, Expected: 4, Died: 3, DiedAge: 5 * time.Millisecond,
		Exits: map[string]int{"SIGABRT": 2, "exit 1": 1}, Main: checks.Process{PID: 7, State: checks.ProcAlive}}, "")
	const want = "main 7 is alive, 0 of 4 workers serve; 3 replacements died at an age of 5ms (SIGABRT x2, exit 1 x1)"
	if f.Detail != want {
		t.Errorf("detail = %q, want %q", f.Detail, want)
	}
}

func TestClose_WaitsForOurOwnConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, src, now := newFake()
	src.snap.Workers, src.snap.Main.Reaped = nil, true
	src.snap.Listeners = []host.Listener{{Addr: netip.MustParseAddrPort(l.Addr().String()), Listening: true, Queue: 1}}
	c.Look(context.Background())
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := time.Now()
	if err := c.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if took := time.Since(begin); took > local.Timeout/2 {
		t.Errorf("Close() took %v, want it to end the connection at once", took)
	}
	*now += 10 * time.Second
	src.snap.At = *now
	if f := c.Look(context.Background()); f.Workers.Local != "" {
		t.Errorf("local = %q after Close(), want none", f.Workers.Local)
	}
}

func TestLook_AnUnansweredConnectionThatWasTakenIsNoSilence(t *testing.T) {
	for queue, want := range map[uint32]checks.LocalLook{0: checks.LocalAccepted, 1: checks.LocalUnanswered} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, src, now := newFake()
			src.snap.Workers, src.snap.Main.Reaped = nil, true
			src.snap.Listeners = []host.Listener{{Addr: netip.MustParseAddrPort(l.Addr().String()), Listening: true, Queue: queue}}
			c.Look(context.Background())
			c.own.Looker.Wait()
			if f := c.Look(context.Background()); f.Workers.Local != "" {
				t.Errorf("local = %q before a dump after it, want none yet", f.Workers.Local)
			}
			*now += 2 * time.Second
			src.snap.At, src.snap.DumpAt = *now, *now
			if f := c.Look(context.Background()); f.Workers.Local != want {
				t.Errorf("local = %q with %d in the queue, want %q", f.Workers.Local, queue, want)
			}
			c.Close()
		})
	}
}

func TestLook_WhatCannotBeToldDoesNotStaySuspicious(t *testing.T) {
	c, src, now := newFake()
	src.snap.Workers, src.snap.Main.Reaped = nil, true
	for _, step := range []struct {
		after      time.Duration
		suspicious bool
	}{{0, true}, {time.Second, true}, {5 * time.Second, false}} {
		*now += step.after
		src.snap.Sweep++
		src.snap.At = *now
		if f := c.Look(context.Background()); f.Suspicious != step.suspicious || f.Outcome != checks.Warn {
			t.Errorf("after %v more: %s, suspicious %t; want warn, %t", step.after, f.Outcome, f.Suspicious, step.suspicious)
		}
	}
}

func TestLook_AStalePIDFileMakesNobodyServe(t *testing.T) {
	addr := netip.MustParseAddrPort("127.0.0.1:80")
	for name, tt := range map[string]struct {
		role    checks.Role
		outcome checks.Outcome
	}{
		"held by a stranger":  {checks.RoleForeign, checks.Blind},
		"held by one of ours": {checks.RoleWorker, checks.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			c, src, now := newFake()
			owner := src.snap.Workers[0]
			if tt.role == checks.RoleForeign {
				owner = host.Process{ID: host.ID{PID: 99, StartTicks: 5}, Comm: "nginx", State: checks.ProcAlive}
			} else {
				src.snap.Workers[0].Listens, src.snap.Workers[1].Listens = true, true
			}
			src.snap.DumpAt = *now
			src.snap.Listeners = []host.Listener{{Addr: addr, Listening: true, Sockets: 1, EverListening: true, Owners: []host.Owner{{Process: owner, Role: tt.role}}}}
			f := c.Look(context.Background())
			if f.Outcome != tt.outcome {
				t.Errorf("Look() = %s %s %q, want %s", f.Outcome, f.Reason, f.Detail, tt.outcome)
			}
			if tt.outcome == checks.Blind && (f.Reason != checks.ReasonMainUnknown || !strings.Contains(f.Detail, "stale pid file") || !strings.Contains(f.Detail, "99 (nginx)")) {
				t.Errorf("Look() says %s %q, want main_unknown, the stale pid file and who holds the port", f.Reason, f.Detail)
			}
		})
	}
}
