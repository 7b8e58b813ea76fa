//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func state(v correlate.Verdict, c correlate.Cause) correlate.State {
	return correlate.State{Verdict: v, Cause: c, Rule: "P1"}
}

// seen is an observation with a serving instance, a state and an incident.
func seen(st correlate.State, steps ...incident.Step) observation {
	v := view{State: st, Steps: steps, Findings: map[string]checks.Finding{
		"web/workers": {Workers: &checks.WorkerFacts{EverServed: true, Main: checks.Process{State: checks.ProcAlive}}}}}
	v.Changes = []change{{began.Add(300 * time.Millisecond), st}}
	return observation{Known: true, KnownAt: began.Add(400 * time.Millisecond), AtKnown: v, View: v}
}

func step(kind incident.StepKind, c correlate.Cause, s incident.Severity) incident.Step {
	return incident.Step{Kind: kind, Cause: c, Severities: []incident.Severity{s}}
}

func TestAssess(t *testing.T) {
	looping := correlate.CauseWorkersCrashLooping
	fault, alike := down(time.Second, looping), healthy()
	good := seen(state(correlate.Down, looping), step(incident.Opened, looping, incident.Page))
	late := good
	late.Known = false
	gone := good
	gone.AtKnown.Findings = map[string]checks.Finding{"web/workers": {Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcGone}}}}
	quiet := seen(state(correlate.Up, ""))
	quiet.LookAlike = true
	paged := seen(state(correlate.Up, ""), step(incident.Opened, looping, incident.Page), step(incident.Closed, looping, incident.Page))
	paged.LookAlike = true
	unknown := seen(state(correlate.Unknown, ""))
	unknown.LookAlike = true
	killed := good
	killed.View.Steps = []incident.Step{{Kind: incident.Opened, Cause: looping, Severities: []incident.Severity{incident.Page},
		State: correlate.State{Because: correlate.CauseOOMKilled}}}
	noticed := seen(state(correlate.Degraded, looping), step(incident.Opened, looping, incident.Page))
	noticed.View.Steps[0].State.Tally.Failing = 1
	for _, c := range []struct {
		name string
		want want
		seen observation
		say  string // part of what is wrong; empty if all is right
	}{
		{"the expected cause, told once", fault, good, ""},
		{"the expected cause, but never in time", fault, late, "after 9s"},
		{"another lifecycle", fault, gone, "lifecycle gone, want serving"},
		{"nobody was told", fault, seen(state(correlate.Down, looping)), "0 incidents"},
		{"told twice", fault, seen(state(correlate.Down, looping), step(incident.Opened, looping, incident.Page), step(incident.Opened, looping, incident.Page)), "2 incidents"},
		{"told as a ticket", fault, seen(state(correlate.Down, looping), step(incident.Opened, looping, incident.Ticket)), "a ticket, want a page"},
		{"a ticket that became a page before anybody saw it", degraded(time.Second, looping).pagesIfSeen(),
			seen(state(correlate.Degraded, looping), step(incident.Opened, looping, incident.Page)), "a page, want a ticket"},
		{"a ticket that became a page when a look failed", degraded(time.Second, looping).pagesIfSeen(), noticed, ""},
		{"put down to something else", fault, seen(state(correlate.Down, looping), step(incident.Opened, correlate.CausePortUnbound, incident.Page)), "put down to port_unbound"},
		{"the because is said", fault.because(correlate.CauseOOMKilled), killed, ""},
		{"the because is not said", fault.because(correlate.CauseOOMKilled), good, `because "", want oom_killed`},
		{"a look-alike, and silence", alike, quiet, ""},
		{"a look-alike that was paged and closed", alike, paged, "opened a page: workers_crash_looping"},
		{"a look-alike that ends unknown", alike, unknown, "verdict unknown at the end"},
		{"a stop that ends unknown", want{Verdict: correlate.Unknown, Lifecycle: []string{"serving"}}, unknown, ""},
	} {
		r := assess(c.want, c.seen, began)
		got := strings.Join(r.Problems, "; ")
		if c.say == "" && got != "" || !strings.Contains(got, c.say) {
			t.Errorf("%s: %q, want %q", c.name, got, c.say)
		}
		if c.seen.Known && !c.seen.LookAlike && (r.KnownMS != 400 || r.FirstMS != 300) {
			t.Errorf("%s: known after %d ms, bad after %d ms, want 400 and 300", c.name, r.KnownMS, r.FirstMS)
		}
	}
}

func TestWatchedConfig_HasNoFault(t *testing.T) {
	for _, s := range servers.All() {
		file, faults := config.Parse("crosscheck.yml", watchedConfig(s, servers.Options{Dir: "/tmp/x", Addr: serverAddr}))
		if len(faults) > 0 || len(config.Compile(file).Targets) != 1 {
			t.Errorf("%s: %v", s.Name, faults)
		}
	}
}

func TestConclude_FailsOnAWrongCell(t *testing.T) {
	ok, wrong, missing := result{OK: true}, result{Problems: []string{"no"}}, result{Missing: "nginx"}
	for _, c := range []struct {
		name    string
		strict  string
		results []result
		fails   bool
	}{
		{"all is right", "1", []result{ok, ok}, false},
		{"one is wrong", "", []result{ok, wrong}, true},
		{"one is missing", "", []result{ok, missing}, false},
		{"one is missing where nothing may be", "1", []result{ok, missing}, true},
	} {
		t.Setenv("CROSSCHECK_NO_SKIP", c.strict)
		if err := conclude(c.results); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
