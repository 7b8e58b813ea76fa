package correlate_test

import (
	"testing"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
)

// TestResume_WhatWasBadIsNotUpUntilSomebodySaysSo gives a new judge what stood
// before, then evidence that leaves one source silent, then that source's word.
func TestResume_WhatWasBadIsNotUpUntilSomebodySaysSo(t *testing.T) {
	pass := checks.Finding{Outcome: checks.Pass}
	workers := checks.Finding{Outcome: checks.Pass, Workers: &checks.WorkerFacts{
		Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", Serving: 4, LivingWorkers: 4, EverServed: true,
	}}
	port := checks.Finding{Outcome: checks.Pass, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true}}
	scope := correlate.Scope{Service: "lb", Region: "par"}
	for _, row := range []struct {
		name  string
		stood correlate.State
		until string // the source that is silent at first
		first correlate.Verdict
	}{
		{"an inside proof", correlate.State{Verdict: correlate.Down, Rule: "P1", Scope: scope}, "inside", correlate.Unknown},
		{"an outside quorum", correlate.State{Verdict: correlate.Down, Rule: "quorum", Scope: scope}, "lb/http", correlate.Unknown},
		{"a suspicion", correlate.State{Verdict: correlate.Down, Rule: "alone", Scope: scope}, "lb/http-1", correlate.Unknown},
		{"all was well", correlate.State{Verdict: correlate.Up, Scope: scope}, "inside", correlate.Up},
		{"another service", correlate.State{Verdict: correlate.Down, Rule: "P1", Scope: correlate.Scope{Service: "www", Region: "par"}}, "inside", correlate.Up},
		{"another instance", correlate.State{Verdict: correlate.Degraded, Rule: "P1", Scope: correlate.Scope{Service: "lb", Region: "par", Instance: "lb-9"}}, "inside", correlate.Up},
	} {
		t.Run(row.name, func(t *testing.T) {
			j, n := newJudge(t), numbering{}
			j.Resume(row.stood)
			say := func(source string) {
				if source == "inside" {
					j.Observe(n.stored("lb/workers", agent, "boot-1", start, workers), start)
					j.Observe(n.stored("lb/port", agent, "boot-1", start, port), start)
					return
				}
				for _, v := range outsideVantages {
					j.Observe(n.stored(source, v, "boot-1", start, pass), start)
				}
			}
			for _, source := range []string{"lb/http", "lb/http-1", "inside"} {
				if source != row.until {
					say(source)
				}
			}
			if got := j.States()[0].Verdict; got != row.first {
				t.Errorf("without %s: got %s, want %s", row.until, got, row.first)
			}
			say(row.until)
			if got := j.States()[0].Verdict; got != correlate.Up {
				t.Errorf("with %s: got %s, want up", row.until, got)
			}
		})
	}
}
