package correlate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
)

// The dimensions of the instance table. An outside that passes and one that is
// unknown are one to it: only failing looks add to what the inside shows.
var (
	mainStates = []checks.ProcState{checks.ProcAlive, checks.ProcStopped, checks.ProcGone}
	spans      = []time.Duration{0, 100 * time.Millisecond, 3 * time.Second, 20 * time.Second}
	listeners  = []string{"none declared", "listening", "absent held", "absent closed", "blind", "one of two held, other blind", "one of two held, other listening"}
	insides    = []string{"usable", "blind"} // the workers check; expired is blind to the table
)

// words are what the server itself says, and whether its workers say anything.
var words = []struct {
	local    checks.LocalLook
	noHolder bool
}{
	{"", false}, {checks.LocalRefused, false}, {checks.LocalAnswered, false}, {checks.LocalAccepted, false},
	{"", true}, {checks.LocalUnanswered, true}, {checks.LocalAnswered, true},
}

type tableRow struct {
	served          bool
	main            checks.ProcState
	serving, living int
	chain           int
	looks           int
	workersSpan     time.Duration
	respawn         time.Duration
	listener        string
	listenerSpan    time.Duration
	inside          string
	local           checks.LocalLook
	noHolder        bool
}

// eachRow calls fn with every combination.
func eachRow(fn func(r tableRow)) {
	for _, served := range []bool{false, true} {
		for _, main := range mainStates {
			for _, k := range []struct{ serving, living int }{{0, 0}, {0, 4}, {2, 4}, {4, 4}} {
				for chain := range 4 {
					for _, looks := range []int{1, 2} {
						for _, span := range spans {
							for _, respawn := range []time.Duration{0, 4 * time.Second} {
								for _, l := range listeners {
									for _, lspan := range []time.Duration{0, 200 * time.Millisecond, 4 * time.Second} {
										for _, inside := range insides {
											for _, w := range words {
												fn(tableRow{
													served: served, main: main, serving: k.serving, living: k.living, chain: chain, looks: looks,
													workersSpan: span, respawn: respawn, listener: l, listenerSpan: lspan, inside: inside, local: w.local, noHolder: w.noHolder,
												})
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func (r tableRow) input(outsideFails bool) correlate.TableInput {
	in := correlate.TableInput{Served: r.served, OutsideFails: outsideFails}
	if r.inside == "usable" {
		w := &checks.WorkerFacts{
			Main: checks.Process{PID: 100, State: r.main, Age: time.Hour}, Generation: "100.1", Serving: r.serving, Expected: 4,
			LivingWorkers: r.living, EverServed: r.served, Respawn: r.respawn, Local: r.local, NoHolder: r.noHolder,
		}
		if r.serving == 0 {
			w.NoneLooks, w.NoneFor, w.NoBirthFor = r.looks, r.workersSpan, r.workersSpan
			w.Chain, w.ChainFor, w.Died = r.chain, r.workersSpan, r.chain
		}
		if r.main == checks.ProcGone {
			w.MainGoneFor = r.workersSpan
		}
		in.Workers = w
	}
	absent := func(held bool) *checks.ListenerFacts {
		return &checks.ListenerFacts{
			Listener: "tcp 192.0.2.1:443", EverListening: true, AbsentDumps: 3, AbsentFor: r.listenerSpan, Held: held,
			MainAlive: r.main != checks.ProcGone, Local: checks.LocalRefused,
		}
	}
	there := &checks.ListenerFacts{Listener: "tcp 192.0.2.1:80", Listening: true, EverListening: true, MainAlive: r.main != checks.ProcGone}
	switch r.listener {
	case "listening":
		in.Declared, in.Listeners = 1, []*checks.ListenerFacts{there}
	case "absent held":
		in.Declared, in.Listeners = 1, []*checks.ListenerFacts{absent(true)}
	case "absent closed":
		in.Declared, in.Listeners = 1, []*checks.ListenerFacts{absent(false)}
	case "blind":
		in.Declared = 1
	case "one of two held, other blind":
		in.Declared, in.Listeners = 2, []*checks.ListenerFacts{absent(true)}
	case "one of two held, other listening":
		in.Declared, in.Listeners = 2, []*checks.ListenerFacts{absent(true), there}
	}
	return in
}

func (r tableRow) String() string {
	return fmt.Sprintf("served %t, main %s, %d serving of %d living, chain %d, %d looks over %s (respawn %s, local %q, no holder %t), listener %s for %s, workers %s",
		r.served, r.main, r.serving, r.living, r.chain, r.looks, r.workersSpan, r.respawn, r.local, r.noHolder, r.listener, r.listenerSpan, r.inside)
}

// goodness orders the table's answers. "Keep" stands between: what it keeps is
// not the table's to say.
func goodness(v correlate.Verdict, ok bool) int {
	switch {
	case !ok || v == correlate.Unknown:
		return 2
	case v == correlate.Up:
		return 3
	case v == correlate.Degraded:
		return 1
	default:
		return 0
	}
}

func TestTable_EveryCombinationIsDecided(t *testing.T) {
	rows, failures := 0, 0
	bad := func(r tableRow, format string, args ...any) {
		if failures++; failures <= 10 {
			t.Errorf("%s:\n%s", r, fmt.Sprintf(format, args...))
		}
	}
	decide := func(r tableRow, fails bool) (correlate.Verdict, correlate.Proof, bool) {
		return correlate.DecideInstance(r.input(fails), policy.DefaultRestartGrace)
	}
	eachRow(func(r tableRow) {
		rows++
		v, p, ok := decide(r, false)
		vf, pf, okf := decide(r, true)

		if v.Bad() != (p.Cause != "" && p.Rule != "") || vf.Bad() != (pf.Cause != "" && pf.Rule != "") || v.Bad() && !ok {
			bad(r, "got %s by %+v (ok %t), want a cause and a rule exactly if it is bad", v, p, ok)
		}
		if goodness(vf, okf) > goodness(v, ok) {
			bad(r, "got %s with the outside failing and %s without: one more fail bettered the verdict", vf, v)
		}
		// Somebody who answers, where nobody died badly, is being reloaded.
		answered := r.local == checks.LocalAnswered && r.chain == 0 && r.living > 0
		past := r.workersSpan >= 5*time.Second && r.workersSpan >= 2*r.respawn && r.looks >= 2 && !answered
		if mute := r.noHolder && r.local != checks.LocalUnanswered; mute {
			past = false
			if r.main != checks.ProcGone && v.Bad() && p.Rule != "P2" {
				bad(r, "got %s by %s, want no proof by workers that nobody saw hold a listener", v, p.Rule)
			}
		}
		if r.inside == "usable" && r.main != checks.ProcGone && r.served && r.serving == 0 && past && v != correlate.Down {
			bad(r, "got %s, want down: main is %s and nobody serves, past every window", v, r.main)
		}
		if ok && v == correlate.Up && (r.inside == "blind" || r.serving == 0) {
			bad(r, "got up, want anything else: nobody was seen serving")
		}
		if ok && v == correlate.Up && r.listener != "listening" && r.listener != "none declared" {
			bad(r, "got up, want anything else: a listener is absent or hidden")
		}
		if r.inside == "blind" && r.listener == "blind" && (!ok || v != correlate.Unknown) {
			bad(r, "got %s (ok %t), want unknown: everything is blind", v, ok)
		}
		if !r.served && r.main == checks.ProcGone && v.Bad() && p.Cause == correlate.CauseMainDead {
			bad(r, "got %s, want no proof against what never served", v)
		}
		if r.inside == "usable" && r.served && r.main == checks.ProcGone && vf != correlate.Down {
			bad(r, "got %s, want down: main is gone and the outside fails", vf)
		}
		// Blindness hides; it never proves and never heals.
		hidden := r
		hidden.inside = "blind"
		hv, _, hok := decide(hidden, false)
		if hok && hv == correlate.Up {
			bad(r, "got up once the workers were hidden")
		}
		if r.listener == "one of two held, other listening" {
			hidden = r
			hidden.listener = "one of two held, other blind"
			if hv, _, hok := decide(hidden, false); goodness(hv, hok) < goodness(v, ok) && hv == correlate.Down {
				bad(r, "got down once the other listener was hidden, %s before", v)
			}
		}
	})
	if rows < 50_000 {
		t.Errorf("enumerated %d combinations, want at least 50000", rows)
	}
}
