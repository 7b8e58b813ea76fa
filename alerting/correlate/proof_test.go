package correlate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
)

const ms = time.Millisecond

// inShort is a proof in short: "RULE CAUSE VERDICT page|ticket", or "none".
func inShort(p correlate.Proof, ok bool) string {
	if !ok {
		return "none"
	}
	leaves := "ticket"
	if p.Page {
		leaves = "page"
	}
	return fmt.Sprintf("%s %s %s %s", p.Rule, p.Cause, p.Verdict, leaves)
}

// serve are four workers that serve; each row changes something.
func serve(change func(*checks.WorkerFacts)) *checks.WorkerFacts {
	f := &checks.WorkerFacts{
		Main: checks.Process{PID: 100, State: checks.ProcAlive, Age: time.Hour}, Generation: "100.1", Serving: 4, Expected: 4, LivingWorkers: 4, EverServed: true,
	}
	for i := range 4 {
		f.Workers = append(f.Workers, checks.Process{PID: 200 + i, State: checks.ProcAlive, Role: checks.RoleWorker, Age: time.Hour, Serving: true})
	}
	change(f)
	return f
}

// frozen stops k of the four for d.
func frozen(k int, d time.Duration) func(*checks.WorkerFacts) {
	return func(f *checks.WorkerFacts) {
		f.Frozen, f.FrozenFor, f.Serving = k, d, 4-k
		for i := range k {
			f.Workers[i].State, f.Workers[i].StoppedFor, f.Workers[i].Serving = checks.ProcStopped, d, false
		}
		if k == 4 {
			f.NoneLooks, f.NoneFor = 9, d
		}
	}
}

// spinning makes k of the four spin for d.
func spinning(k int, d time.Duration) func(*checks.WorkerFacts) {
	return func(f *checks.WorkerFacts) {
		f.SpinningFor = d
		for i := range k {
			f.Workers[i].SpinFor = d
		}
		if d >= 15*time.Second {
			f.Spinning = k
		}
	}
}

func with(changes ...func(*checks.WorkerFacts)) func(*checks.WorkerFacts) {
	return func(f *checks.WorkerFacts) {
		for _, c := range changes {
			c(f)
		}
	}
}

func local(l checks.LocalLook, fails int, d time.Duration) func(*checks.WorkerFacts) {
	return func(f *checks.WorkerFacts) { f.Local, f.LocalFails, f.LocalFor = l, fails, d }
}

func TestProveWorkers_AtEachBoundary(t *testing.T) {
	sec := time.Second
	for _, row := range []struct {
		name string
		is   func(*checks.WorkerFacts)
		want string
	}{
		{"all is well", func(*checks.WorkerFacts) {}, "none"},
		{"P3 one of four for 4.999 s", frozen(1, 4999*ms), "none"},
		{"P3 one of four for 5 s", frozen(1, 5*sec), "P3 workers_frozen degraded ticket"},
		{"P3 two of four leave half", frozen(2, 5*sec), "P3 workers_frozen degraded ticket"},
		{"P3 three of four leave fewer than half", frozen(3, 5*sec), "P3 workers_frozen degraded page"},
		{"P3 one of four, below the minimum", with(frozen(1, 5*sec), func(f *checks.WorkerFacts) { f.Minimum = 4 }), "P3 workers_frozen degraded page"},
		{"P3 one of four, at the minimum", with(frozen(1, 5*sec), func(f *checks.WorkerFacts) { f.Minimum = 3 }), "P3 workers_frozen degraded ticket"},
		{"P3 all, nobody asked yet", frozen(4, 300*ms), "none"},
		{"P3 all, ours refused", with(frozen(4, 300*ms), local(checks.LocalRefused, 1, 300*ms)), "P3 workers_frozen down page"},
		{"P3 all, ours not accepted", with(frozen(4, 300*ms), local(checks.LocalUnanswered, 1, 300*ms)), "P3 workers_frozen down page"},
		{"P3 all, ours accepted by main", with(frozen(4, 300*ms), local(checks.LocalAccepted, 1, 300*ms)), "P3 workers_frozen down page"},
		{"P3 all, ours failed for reasons of our own", with(frozen(4, 300*ms), local(checks.LocalFailed, 1, 300*ms)), "none"},
		{"P3 all for 5 s, nobody to ask", frozen(4, 5*sec), "P3 workers_frozen down page"},
		{"P3 all and main", with(frozen(4, 300*ms), local(checks.LocalUnanswered, 1, 300*ms), func(f *checks.WorkerFacts) { f.Main.State = checks.ProcStopped }), "P3 main_frozen down page"},
		{"P6 one for 29.999 s", spinning(1, 29999*ms), "none"},
		{"P6 one for 30 s", spinning(1, 30*sec), "P6 workers_spinning degraded ticket"},
		{"P6 two for 30 s leave half", spinning(2, 30*sec), "P6 workers_spinning degraded ticket"},
		{"P6 three for 30 s", spinning(3, 30*sec), "P6 workers_spinning degraded page"},
		{"P6 one for 15 s, ours fails", with(spinning(1, 15*sec), local(checks.LocalUnanswered, 1, sec)), "P6 workers_spinning degraded ticket"},
		{"P6 one for 14.999 s, ours fails", with(spinning(1, 14999*ms), local(checks.LocalUnanswered, 1, sec)), "none"},
		{"P6 all for 15 s, ours fails", with(spinning(4, 15*sec), local(checks.LocalUnanswered, 1, sec)), "P6 workers_spinning down page"},
		{"P6 all for 30 s, nobody asked", spinning(4, 30*sec), "P6 workers_spinning degraded page"},
		{"P6 all for 30 s, somebody answers", with(spinning(4, 30*sec), local(checks.LocalAnswered, 0, 0)), "P6 workers_spinning degraded ticket"},
		{"P6 a lone main for 30 s", func(f *checks.WorkerFacts) {
			f.MainServes, f.Workers, f.LivingWorkers, f.Serving, f.Expected = true, nil, 0, 1, 1
			f.Main.SpinFor, f.SpinningFor = 30*sec, 30*sec
		}, "P6 workers_spinning degraded page"},
		{"P6 and P3, half is left", with(frozen(1, 5*sec), func(f *checks.WorkerFacts) { f.Workers[3].SpinFor, f.SpinningFor, f.Spinning = 30*sec, 30*sec, 1 }), "P6 workers_spinning degraded ticket"},
		{"P6 and P3, less than half is left", with(frozen(2, 5*sec), func(f *checks.WorkerFacts) { f.Workers[3].SpinFor, f.SpinningFor, f.Spinning = 30*sec, 30*sec, 1 }), "P6 workers_spinning degraded page"},
		{"P8 two looks", local(checks.LocalAccepted, 2, 9*sec), "none"},
		{"P8 three in 2.999 s", local(checks.LocalAccepted, 3, 2999*ms), "none"},
		{"P8 three in 3 s", local(checks.LocalAccepted, 3, 3*sec), "P8 no_progress down page"},
		{"P5 three in 3 s, not accepted", local(checks.LocalUnanswered, 3, 3*sec), "P5 accept_queue_stuck down page"},
		{"P8 six, with one of four frozen", with(frozen(1, sec), local(checks.LocalAccepted, 6, 9*sec)), "none"},
		{"P8 seven, with one of four frozen", with(frozen(1, sec), local(checks.LocalAccepted, 7, 9*sec)), "P8 no_progress down page"},
		{"P9 for 9.999 s", func(f *checks.WorkerFacts) { f.Serving, f.Minimum, f.BelowFor = 2, 3, 9999*ms }, "none"},
		{"P9 for 10 s", func(f *checks.WorkerFacts) { f.Serving, f.Minimum, f.BelowFor = 2, 3, 10*sec }, "P9 workers_below_minimum degraded page"},
		{"P9 of none", func(f *checks.WorkerFacts) {
			f.Serving, f.Minimum, f.BelowFor, f.NoHolder, f.NoneLooks, f.NoneFor = 0, 3, 10*sec, true, 9, 10*sec
		}, "P9 workers_below_minimum down page"},
		{"P11 without a failed look", func(f *checks.WorkerFacts) { f.FDsExhausted = 4 }, "none"},
		{"P11 of all, ours fails", with(local(checks.LocalUnanswered, 1, sec), func(f *checks.WorkerFacts) { f.FDsExhausted = 4 }), "P11 fd_exhausted down page"},
		{"P11 of one, ours fails", with(local(checks.LocalUnanswered, 1, sec), func(f *checks.WorkerFacts) { f.FDsExhausted = 1 }), "P11 fd_exhausted degraded page"},
		{"P11 is the root of P8", with(local(checks.LocalAccepted, 3, 3*sec), func(f *checks.WorkerFacts) { f.FDsExhausted = 1 }), "P11 fd_exhausted down page"},
		{"P12 for 7.999 s", func(f *checks.WorkerFacts) { f.Main.State, f.Main.StoppedFor = checks.ProcStopped, 7999*ms }, "none"},
		{"P12 for 8 s", func(f *checks.WorkerFacts) { f.Main.State, f.Main.StoppedFor = checks.ProcStopped, 8*sec }, "P12 main_frozen degraded ticket"},
		{"P12, ours fails, seen once", with(local(checks.LocalUnanswered, 1, sec), func(f *checks.WorkerFacts) { f.Main.State, f.Main.StoppedFor = checks.ProcStopped, 99*ms }), "none"},
		{"P12, ours fails, seen twice", with(local(checks.LocalUnanswered, 1, sec), func(f *checks.WorkerFacts) { f.Main.State, f.Main.StoppedFor = checks.ProcStopped, 100*ms }), "P12 main_frozen down page"},
		{"P1k one slot", func(f *checks.WorkerFacts) { f.LoopingSlots, f.Serving = 1, 3 }, "P1k workers_crash_looping degraded ticket"},
		{"P1k three slots", func(f *checks.WorkerFacts) { f.LoopingSlots, f.Serving = 3, 1 }, "P1k workers_crash_looping degraded page"},
		{"P4 one exit", func(f *checks.WorkerFacts) { f.Serving, f.Main.State, f.MainDeaths = 0, checks.ProcGone, 1 }, "none"},
		{"P4 two exits", func(f *checks.WorkerFacts) { f.Serving, f.Main.State, f.MainDeaths = 0, checks.ProcGone, 2 }, "P4 main_crash_looping down page"},
		{"P4 two exits and the third serves", func(f *checks.WorkerFacts) { f.MainDeaths = 2 }, "none"},
		{"P4 given up", func(f *checks.WorkerFacts) { f.Serving, f.Main.State, f.MainGaveUp = 0, checks.ProcGone, true }, "P4 main_crash_looping down page"},
		{"processes that hold no listener tell nothing", with(frozen(1, time.Hour), func(f *checks.WorkerFacts) { f.NoHolder, f.LoopingSlots = true, 2 }), "none"},
	} {
		f := serve(row.is)
		if got := inShort(correlate.ProveWorkers(f, true)); got != row.want {
			t.Errorf("%s: ProveWorkers() = %s, want %s", row.name, got, row.want)
		}
		if got := inShort(correlate.Prove(&checks.Finding{Workers: f}, true)); got != row.want {
			t.Errorf("%s: Prove() = %s, want %s", row.name, got, row.want)
		}
	}
}

func TestProveListener_AtEachBoundary(t *testing.T) {
	sec := time.Second
	stolen := func(looks int, share float64, l checks.LocalLook) func(*checks.ListenerFacts) {
		return func(f *checks.ListenerFacts) {
			f.ForeignLooks, f.ForeignFor, f.LostShare, f.Local = looks, sec, share, l
		}
	}
	queue := func(dumps int, d time.Duration, l checks.LocalLook) func(*checks.ListenerFacts) {
		return func(f *checks.ListenerFacts) {
			f.Queue, f.QueueDumps, f.QueueFor, f.Local, f.LocalFails, f.LocalFor = 5, dumps, d, l, 1, sec
		}
	}
	for _, row := range []struct {
		name string
		is   func(*checks.ListenerFacts)
		want string
	}{
		{"all is well", func(*checks.ListenerFacts) {}, "none"},
		{"P5 in 2 dumps", queue(2, 3*sec, checks.LocalUnanswered), "none"},
		{"P5 for 2.999 s", queue(3, 2999*ms, checks.LocalUnanswered), "none"},
		{"P5 for 3 s", queue(3, 3*sec, checks.LocalUnanswered), "P5 accept_queue_stuck down page"},
		{"P5, ours was accepted", queue(3, 3*sec, checks.LocalAccepted), "none"},
		{"P5, ours was not made", queue(3, 3*sec, ""), "none"},
		{"P10 declared and not bound for 59 s", func(f *checks.ListenerFacts) { f.Listening, f.EverListening, f.AbsentFor = false, false, 59*sec }, "none"},
		{"P10 declared and not bound for 60 s", func(f *checks.ListenerFacts) { f.Listening, f.EverListening, f.AbsentFor = false, false, 60*sec }, "P10 port_unbound degraded ticket"},
		{"P5 full in 1 dump", func(f *checks.ListenerFacts) { f.FullDumps, f.Local, f.LocalFails = 1, checks.LocalUnanswered, 2 }, "none"},
		{"P5 full, ours failed once", func(f *checks.ListenerFacts) { f.FullDumps, f.Local, f.LocalFails = 2, checks.LocalUnanswered, 1 }, "none"},
		{"P5 full in 2 dumps", func(f *checks.ListenerFacts) {
			f.FullDumps, f.QueueDumps, f.Local, f.LocalFails = 2, 3, checks.LocalUnanswered, 2
		}, "P5 accept_queue_stuck down page"},
		{"P5 of what never listened", func(f *checks.ListenerFacts) {
			f.EverListening = false
			queue(3, 3*sec, checks.LocalUnanswered)(f)
		}, "none"},
		{"P5 without main", func(f *checks.ListenerFacts) {
			f.MainAlive = false
			queue(3, 3*sec, checks.LocalUnanswered)(f)
		}, "none"},
		{"P7 in one look", stolen(1, 1, checks.LocalUnanswered), "none"},
		{"P7 of all, nobody says whose answer it is", stolen(2, 1, checks.LocalAnswered), "P7 port_stolen degraded page"},
		{"P7 of all, ours is not answered", stolen(2, 1, checks.LocalUnanswered), "P7 port_stolen down page"},
		{"P7 of some", stolen(2, 0.25, checks.LocalAnswered), "P7 port_stolen degraded ticket"},
		{"P7 of some, ours met it", stolen(2, 0.25, checks.LocalUnanswered), "P7 port_stolen degraded page"},
		{"P8 two looks", func(f *checks.ListenerFacts) { f.Local, f.LocalFails, f.LocalFor = checks.LocalAccepted, 2, 9*sec }, "none"},
		{"P8 in 2.999 s", func(f *checks.ListenerFacts) { f.Local, f.LocalFails, f.LocalFor = checks.LocalAccepted, 3, 2999*ms }, "none"},
		{"P8 in 3 s", func(f *checks.ListenerFacts) { f.Local, f.LocalFails, f.LocalFor = checks.LocalAccepted, 3, 3*sec }, "P8 no_progress down page"},
		{"P7 is the root of P5", func(f *checks.ListenerFacts) {
			queue(3, 3*sec, checks.LocalUnanswered)(f)
			stolen(2, 1, checks.LocalUnanswered)(f)
		}, "P7 port_stolen down page"},
	} {
		f := &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true, Sockets: 1, Backlog: 128}
		row.is(f)
		if got := inShort(correlate.ProveListener(f, false)); got != row.want {
			t.Errorf("%s: ProveListener() = %s, want %s", row.name, got, row.want)
		}
	}
}

func TestProveHeartbeat_AtEachBoundary(t *testing.T) {
	every, grace := time.Minute, 10*time.Second
	for _, row := range []struct {
		name  string
		facts checks.HeartbeatFacts
		alone bool
		want  string
	}{
		{"in time", checks.HeartbeatFacts{Last: every + grace}, true, "none"},
		{"late, alone", checks.HeartbeatFacts{Last: every + grace + 1}, true, "heartbeat heartbeat_missed down page"},
		{"it asks for it", checks.HeartbeatFacts{Last: 1, Triggered: true}, true, "heartbeat heartbeat_missed down page"},
		{"late, beside others", checks.HeartbeatFacts{Last: every + grace + 1}, false, "heartbeat heartbeat_missed degraded page"},
		{"the first is waited for", checks.HeartbeatFacts{Last: -1, Waiting: every + grace - 1}, true, "none"},
		{"the first never came", checks.HeartbeatFacts{Last: -1, Waiting: every + grace}, true, "P10 never_ready degraded ticket"},
		{"none of the declared is missed", checks.HeartbeatFacts{Last: 1, Expected: 2, Beating: 2}, true, "none"},
		{"half of the declared", checks.HeartbeatFacts{Last: 1, Expected: 2, Beating: 1, Missed: []string{"a"}}, true, "heartbeat workers_dead degraded ticket"},
		{"all of the declared", checks.HeartbeatFacts{Last: time.Hour, Expected: 2, Missed: []string{"a", "b"}}, true, "heartbeat workers_dead down page"},
		{"all of the declared, beside others", checks.HeartbeatFacts{Last: time.Hour, Expected: 2, Missed: []string{"a", "b"}}, false, "heartbeat workers_dead degraded page"},
	} {
		row.facts.Every, row.facts.Grace = every, grace
		if got := inShort(correlate.ProveHeartbeat(&row.facts, row.alone)); got != row.want {
			t.Errorf("%s: ProveHeartbeat() = %s, want %s", row.name, got, row.want)
		}
	}
}

// TestProve_SentencesNameWhatAPersonNeeds checks the words of what is new, for
// every way of being stopped and every because.
func TestProve_SentencesNameWhatAPersonNeeds(t *testing.T) {
	tracer := with(frozen(1, 6*time.Second), func(f *checks.WorkerFacts) { f.Workers[0].Traced, f.Workers[0].Tracer = true, "strace 4711" })
	cgroup := with(frozen(1, 6*time.Second), func(f *checks.WorkerFacts) { f.Workers[0].CgroupFrozen = true })
	oom := func(f *checks.WorkerFacts) {
		f.LoopingSlots, f.Serving, f.OOMKills, f.Exits = 1, 3, 1, map[string]int{"SIGKILL": 3, "unknown": 1}
	}
	for _, row := range []struct {
		is      func(*checks.WorkerFacts)
		because correlate.Cause
		want    string
	}{
		{tracer, "", "main alive, 1 of 4 workers stopped (traced by strace 4711) for 6s, pid 200"},
		{cgroup, "", "1 of 4 workers stopped (frozen control group) for 6s, pid 200"},
		{frozen(3, 6*time.Second), "", "3 of 4 workers stopped (SIGSTOP) for 6s, pids 200, 201, 202"},
		{oom, correlate.CauseOOMKilled, "1 of 4 worker slots crash-loop for 0s (SIGKILL); because 1 of its processes was killed for memory within a minute"},
		{with(spinning(1, time.Minute), func(f *checks.WorkerFacts) { f.Host = &checks.HostFacts{Starved: true, Burner: "/batch"} }), correlate.CauseHostStarved, "pid 200; because the host is short of CPU: /batch burns most of it"},
		{with(spinning(1, 30*time.Second), func(f *checks.WorkerFacts) { f.Host = &checks.HostFacts{Starved: true} }), "", "for 30s, pid 200"},
		{func(f *checks.WorkerFacts) {
			f.Serving, f.Minimum, f.BelowFor, f.StaleConfig, f.StaleFor = 1, 2, time.Minute, "/etc/lb.conf", time.Minute
		}, correlate.CauseStaleGeneration, "because /etc/lb.conf, changed 1m0s ago, was not loaded or was refused"},
	} {
		p, ok := correlate.ProveWorkers(serve(row.is), true)
		if !ok || !strings.Contains(p.Text, row.want) || p.Because != row.because {
			t.Errorf("ProveWorkers() = %q because %q (%t), want %q because %q", p.Text, p.Because, ok, row.want, row.because)
		}
	}
}
