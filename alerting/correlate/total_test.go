package correlate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
)

// totalRow is one combination of what the newer rules ask: who is frozen, spins
// or loops, whose queue stands, who holds the port, and what looks say.
type totalRow struct {
	served    bool
	main      checks.ProcState
	crew      crew
	looping   int
	listener  string
	stuck     bool // its queue does not drain
	local     checks.LocalLook
	share     float64 // lost to strangers
	fds       int
	onDemand  bool
	heartbeat string
	past      bool // every window has passed
}

// crew is how many of four workers do what.
type crew struct{ serving, living, frozen, spinning int }

var crews = []crew{
	{0, 0, 0, 0}, {0, 4, 0, 0}, {0, 4, 4, 0}, {0, 4, 1, 0}, {2, 4, 2, 0}, {3, 4, 1, 0}, {3, 4, 1, 3}, {4, 4, 0, 0}, {4, 4, 0, 1}, {4, 4, 0, 4},
}

// outsides are what the places say, from the best: pinned looks pass, nobody
// looks, they fail, and customers see it.
var outsides = []string{"passes", "unknown", "fails", "public fails"}

func (r totalRow) input(outside string) correlate.TableInput {
	span, look := 200*time.Millisecond, time.Duration(0)
	if r.past {
		span, look = 40*time.Second, 5*time.Second
	}
	c := r.crew
	in := correlate.TableInput{Served: r.served, OutsidePasses: outside == "passes", OutsideFails: outside == "fails" || outside == "public fails", PublicFails: outside == "public fails"}
	w := &checks.WorkerFacts{
		Main: checks.Process{PID: 100, State: r.main, Age: time.Hour, StoppedFor: span}, Generation: "100.1", Serving: c.serving, Expected: 4, LivingWorkers: c.living,
		EverServed: r.served, LoopingSlots: r.looping, FDsExhausted: r.fds, OnDemand: r.onDemand, Local: r.local, LocalFails: 3, LocalFor: look,
		Frozen: c.frozen, Spinning: c.spinning,
	}
	if c.frozen > 0 {
		w.FrozenFor = span
	}
	if c.spinning > 0 {
		w.SpinningFor = max(span, 15*time.Second)
	}
	for i := range c.living {
		p := checks.Process{PID: 200 + i, State: checks.ProcAlive, Role: checks.RoleWorker, Age: time.Hour}
		if i < c.frozen {
			p.State, p.StoppedFor = checks.ProcStopped, span
		} else if i < c.frozen+c.spinning {
			p.SpinFor = w.SpinningFor
		}
		w.Workers = append(w.Workers, p)
	}
	if c.serving == 0 {
		w.NoneLooks, w.NoneFor, w.NoBirthFor = 9, span, span
	}
	if r.main == checks.ProcGone {
		w.MainGoneFor = span
	}
	in.Workers = w
	if r.listener != "none" {
		l := &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: r.main != checks.ProcGone, Sockets: 1, Local: r.local, LocalFails: 3, LocalFor: look}
		if r.stuck {
			l.Queue, l.QueueDumps, l.QueueFor = 5, 9, span
		}
		if r.share > 0 {
			l.ForeignLooks, l.ForeignFor, l.LostShare = 2, span, r.share
		}
		if r.listener == "closed" {
			l.Listening, l.AbsentDumps, l.AbsentFor = false, 9, span
		}
		in.Declared, in.Listeners = 1, []*checks.ListenerFacts{l}
	}
	switch r.heartbeat {
	case "beats":
		in.Heartbeats = []*checks.HeartbeatFacts{{Every: time.Minute, Last: time.Second}}
	case "missed":
		in.Heartbeats = []*checks.HeartbeatFacts{{Every: time.Minute, Last: time.Hour}}
	}
	return in
}

// eachTotal calls fn with every combination.
func eachTotal(fn func(totalRow)) {
	r := totalRow{}
	for _, r.served = range []bool{false, true} {
		for _, r.main = range mainStates {
			for _, r.crew = range crews {
				for _, r.looping = range []int{0, 2} {
					for _, r.past = range []bool{false, true} {
						for _, r.onDemand = range []bool{false, true} {
							for _, r.fds = range []int{0, 4} {
								eachLook(r, fn)
							}
						}
					}
				}
			}
		}
	}
}

func eachLook(r totalRow, fn func(totalRow)) {
	for _, r.local = range []checks.LocalLook{"", checks.LocalAnswered, checks.LocalRefused, checks.LocalUnanswered, checks.LocalAccepted} {
		for _, r.heartbeat = range []string{"none", "beats", "missed"} {
			for _, l := range []struct {
				name  string
				stuck bool
				share float64
			}{{"none", false, 0}, {"listening", false, 0}, {"listening", true, 0}, {"listening", false, 0.5}, {"listening", true, 1}, {"listening", false, 1}, {"closed", false, 0}} {
				r.listener, r.stuck, r.share = l.name, l.stuck, l.share
				fn(r)
			}
		}
	}
}

// down reports whether nobody may say anything but down: main is there, the
// instance has served, nobody serves, and every window has passed.
func (r totalRow) down(outside string) bool {
	if !r.past || !r.served || r.crew.serving > 0 || r.main == checks.ProcGone {
		return false
	}
	mute := r.local == checks.LocalRefused || r.local == checks.LocalUnanswered || r.local == checks.LocalAccepted
	rest := r.onDemand && r.main == checks.ProcAlive && !mute && !(r.stuck && r.listener == "listening")
	answered := r.local == checks.LocalAnswered && r.crew.living > 0 // as on a reload each second
	intruder := r.share == 1 && outside == "passes" && !mute
	return !rest && !answered && !intruder
}

// well reports whether all that is seen is as it should be.
func (r totalRow) well() bool {
	return r.main == checks.ProcAlive && r.crew == crew{4, 4, 0, 0} && r.looping == 0 && (r.listener == "none" || r.listener == "listening") &&
		!r.stuck && r.share == 0 && (r.local == "" || r.local == checks.LocalAnswered) && r.heartbeat != "missed"
}

// intents checks that an announced stop delays what the inside proves, within its
// limit and unless customers see it, and is its cause after that.
func intents(r totalRow, bad func(string, ...any)) {
	for _, outside := range outsides {
		v, p, ok := correlate.DecideInstance(r.input(outside), policy.DefaultRestartGrace)
		within, over := r.input(outside), r.input(outside)
		within.Workers.Stopping, within.Workers.StoppingFor = true, 119*time.Second
		over.Workers.Stopping, over.Workers.StoppingFor = true, 120*time.Second
		vw, pw, okw := correlate.DecideInstance(within, policy.DefaultRestartGrace)
		vo, po, oko := correlate.DecideInstance(over, policy.DefaultRestartGrace)
		if outside == "public fails" {
			if vw != vo || pw.Cause != po.Cause || okw != oko {
				bad("customers see it: got %s %s within the limit of a stop, want as after it: %s %s", vw, pw.Cause, vo, po.Cause)
			}
			continue
		}
		if okw && vw.Bad() {
			bad("outside %s: got %s by %s within the limit of a stop, want it to wait", outside, vw, pw.Rule)
		}
		switch {
		case v.Bad() && (vo != v || po.Cause != correlate.CauseStopped && po.Cause != p.Cause || po.Ago < p.Ago):
			bad("outside %s: got %s %s after the limit of a stop, want %s %s or stopped", outside, vo, po.Cause, v, p.Cause)
		case p.Cause == correlate.CauseMainDead && po.Cause != correlate.CauseStopped:
			bad("outside %s: got %s after the limit of a stop, want stopped", outside, po.Cause)
		case !v.Bad() && (vo != v || oko != ok):
			bad("outside %s: got %s (ok %t) after the limit of a stop, want %s (ok %t), as without", outside, vo, oko, v, ok)
		}
	}
}

func TestTotal_ExactlyOneAnswerToEveryCombination(t *testing.T) {
	rows, failures := 0, 0
	eachTotal(func(r totalRow) {
		rows++
		bad := func(format string, args ...any) {
			if failures++; failures <= 10 {
				t.Errorf("%+v:\n%s", r, fmt.Sprintf(format, args...))
			}
		}
		before := 3 // goodness
		for _, outside := range outsides {
			v, p, ok := correlate.DecideInstance(r.input(outside), policy.DefaultRestartGrace)
			answers := 0
			for _, is := range []bool{
				!ok && p.Cause == "",
				ok && v == correlate.Unknown && p.Cause == "",
				ok && v == correlate.Up && p.Cause == "",
				ok && v.Bad() && p.Cause != "" && p.Rule != "" && p.Text != "" && p.Ago >= 0,
			} {
				if is {
					answers++
				}
			}
			if answers != 1 {
				bad("outside %s: got %d answers, want one: %s (ok %t) by %+v", outside, answers, v, ok, p)
			}
			if g := goodness(v, ok); g > before {
				bad("outside %s: got %s by %s, better than where fewer looks failed", outside, v, p.Rule)
			} else {
				before = g
			}
			switch {
			case r.down(outside) && v != correlate.Down:
				bad("outside %s: got %s (ok %t) by %s, want down: nobody serves, past every window", outside, v, ok, p.Rule)
			case r.well() && r.served && r.fds == 0 && (!ok || v != correlate.Up):
				bad("outside %s: got %s (ok %t) by %+v, want up: all is well inside", outside, v, ok, p)
			case ok && v == correlate.Up && r.crew.serving == 0 && !(r.onDemand && r.main == checks.ProcAlive):
				bad("outside %s: got up, want anything else: nobody serves", outside)
			case ok && v == correlate.Up && (r.listener == "closed" || r.heartbeat == "missed" || r.share > 0 || r.main != checks.ProcAlive && r.past):
				bad("outside %s: got up, want anything else", outside)
			case v == correlate.Down && r.crew.serving > 0 && r.main == checks.ProcAlive && r.listener != "closed" && !r.stuck && r.share == 0 &&
				(r.local == "" || r.local == checks.LocalAnswered) && outside == "passes":
				bad("got down by %s, want at most degraded: somebody serves and no look fails", p.Rule)
			case !r.served && r.main != checks.ProcAlive && v == correlate.Down && p.Cause == correlate.CauseMainDead:
				bad("outside %s: got main_dead of what never served", outside)
			}
		}
		if r.fds == 0 && r.looping == 0 && r.heartbeat == "none" {
			intents(r, bad)
		}
		hidden := r.input("unknown")
		hidden.Workers, hidden.Listeners = nil, nil
		if v, _, ok := correlate.DecideInstance(hidden, policy.DefaultRestartGrace); ok && v == correlate.Up {
			bad("got up once the agent was blind")
		}
	})
	if rows < 100_000 {
		t.Errorf("enumerated %d combinations, want at least 100000", rows)
	}
	t.Logf("%d combinations, each with %d words from outside", rows, len(outsides))
}
