package workercheck_test

import (
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

// restart ends main at an age, and begins another after a while.
func (p *proves) restart(age time.Duration, exit host.Exit, after time.Duration) {
	p.pass(max(0, age-(p.now-p.snap.Main.Process.Born)))
	main := p.snap.Main.Process
	p.event(host.Event{Kind: host.MainDeath, Process: main.ID, Born: p.now - age, At: p.now, Exit: exit})
	p.snap.Main.Status, p.snap.Workers = host.MainGone, nil
	p.pass(after)
	if after >= 0 {
		p.snap.Main = host.Main{Status: host.MainAlive, Process: p.process(p.now)}
		p.event(host.Event{Kind: host.MainFound})
		p.pass(25 * ms)
	}
}

func TestTracker_MainsThatEndBeforeTheyServe(t *testing.T) {
	exit1, segv := host.Exit{Known: true, Code: 1}, host.Exit{Known: true, Signal: 11}
	for name, tt := range map[string]struct {
		play   func(p *proves)
		deaths int
		exit   string
	}{
		"none has ended": {func(p *proves) {}, 0, ""},
		"an old one was killed": {func(p *proves) {
			p.restart(100*time.Second, killed, time.Second)
		}, 0, "SIGKILL"},
		"two young ones failed": {func(p *proves) {
			p.restart(100*time.Second, segv, time.Second)
			p.restart(200*ms, exit1, time.Second)
			p.restart(200*ms, exit1, time.Second)
		}, 2, "exit 1"},
		"young ones were told to end": {func(p *proves) {
			for range 3 {
				p.restart(200*ms, host.Exit{Known: true, Signal: 15}, time.Second)
			}
		}, 0, "SIGTERM"},
		"young ones ended, nobody knows how": {func(p *proves) {
			for range 3 {
				p.restart(200*ms, host.Exit{}, time.Second)
			}
		}, 3, "unknown"},
		"then one served for longer than it takes to start": {func(p *proves) {
			for range 3 {
				p.restart(200*ms, exit1, time.Second)
			}
			p.bear(p.now)
			p.pass(6 * time.Second)
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := four()
			tt.play(p)
			if f := &p.facts; f.MainDeaths != tt.deaths || f.MainExit != tt.exit || (tt.deaths > 0) != (f.MainLoopFor > 0) {
				t.Errorf("%d deaths over %v, exit %q; want %d, %q", f.MainDeaths, f.MainLoopFor, f.MainExit, tt.deaths, tt.exit)
			}
		})
	}
}

func TestTracker_WhatHappensAroundTheWorkers(t *testing.T) {
	p := four()
	p.snap.Cgroup, p.snap.OOMKills = "/system.slice/web.service", 7
	if p.look(time.Second); p.facts.OOMKills != 0 {
		t.Errorf("%d kills for memory, all from before we looked", p.facts.OOMKills)
	}
	p.snap.OOMKills = 9
	if p.look(time.Second); p.facts.OOMKills != 2 {
		t.Errorf("%d kills for memory, want 2", p.facts.OOMKills)
	}
	p.pass(59 * time.Second)
	p.snap.OOMKills++
	p.look(2 * time.Second)
	if p.facts.OOMKills != 1 {
		t.Errorf("%d kills for memory, want that of the last minute", p.facts.OOMKills)
	}
	p.snap.Cgroup, p.snap.OOMKills = "/elsewhere", 4000
	if p.look(61 * time.Second); p.facts.OOMKills != 0 {
		t.Errorf("%d kills for memory in another group", p.facts.OOMKills)
	}

	p.snap.StaleConfig, p.snap.StaleSince = "/etc/web.conf", p.now-time.Minute
	p.snap.GaveUp = true
	p.snap.Host = host.HostState{CPUPressure: 0.7, Burner: "/elsewhere/x", CPUs: 2}
	p.look(0)
	if f := &p.facts; f.StaleConfig != "/etc/web.conf" || f.StaleFor != time.Minute || !f.MainGaveUp || f.Host == nil || !f.Host.Starved || !f.Host.BurnerOurs {
		t.Errorf("facts %+v, host %+v; want the stale file, given up, starved by our own group", f, f.Host)
	}
}

func TestTracker_BelowTheMinimum(t *testing.T) {
	p := &proves{script: newScript(4)}
	p.tracker.Minimum = 3
	p.look(0)
	if p.facts.Minimum != 3 || p.facts.BelowFor != 0 {
		t.Errorf("minimum %d, below for %v", p.facts.Minimum, p.facts.BelowFor)
	}
	p.die(0, killed)
	if p.pass(time.Second); p.facts.BelowFor != 0 {
		t.Errorf("3 of at least 3 serve: below for %v", p.facts.BelowFor)
	}
	p.die(0, killed)
	p.look(0)
	if p.look(10 * time.Second); p.facts.BelowFor != 10*time.Second {
		t.Errorf("below for %v, want 10s", p.facts.BelowFor)
	}
	p.bear(p.now)
	if p.pass(1100 * ms); p.facts.BelowFor != 0 {
		t.Errorf("below for %v after a third serves", p.facts.BelowFor)
	}
}

func TestTracker_AMinimumIsExpectedBeforeItIsSeen(t *testing.T) {
	p := &proves{script: newScript(2)}
	p.tracker.Minimum = 5
	if p.look(0); p.facts.Expected != 5 || p.facts.Serving != 2 {
		t.Errorf("%d of %d serve, want 2 of 5", p.facts.Serving, p.facts.Expected)
	}
}

func TestTracker_APoolDeclaredOnDemandIsWellAtZeroWhileNothingWaits(t *testing.T) {
	p := &proves{script: newScript(1)}
	p.tracker.OnDemand = true
	p.snap.Listeners = []host.Listener{{Listening: true, Backlog: 128, EverListening: true}}
	p.snap.DumpAt = p.now
	p.look(0)
	p.die(0, clean)
	p.pass(10 * time.Second)
	if f := &p.facts; p.proof != "" || f.Serving != 1 || !f.OnDemand {
		t.Errorf("proof %q, %d serve, on demand %t; want none, main, true", p.proof, f.Serving, f.OnDemand)
	}
	p.snap.Listeners[0].Queue = 3 // and nobody is forked
	for range 80 {
		p.snap.DumpAt += 100 * ms
		p.look(100 * ms)
	}
	if p.facts.Serving != 0 {
		t.Error("it serves, though connections wait")
	}
}

func TestTracker_LearnsHowLongAWorkerNeeds(t *testing.T) {
	p := &proves{script: newScript(0)}
	p.snap.Main.Process = p.process(p.now)
	p.bear(p.now)
	p.bear(p.now)
	born := p.now
	p.pass(2500 * ms)
	p.local = workercheck.Answer{Look: checks.LocalUnanswered, Began: p.now - time.Second, Ended: p.now}
	p.pass(2500 * ms)
	p.local = workercheck.Answer{Look: checks.LocalAnswered, Began: p.now - 100*ms, Ended: p.now} // the application is loaded
	p.look(0)
	p.local = workercheck.Answer{}
	p.pass(5 * time.Second)
	if p.facts.Serving != 2 {
		t.Fatalf("%d serve at an age of %v, want 2", p.facts.Serving, p.now-born)
	}
	p.dieAll(killed)
	p.pass(100 * ms)
	p.bear(p.now)
	p.bear(p.now)
	if p.pass(4 * time.Second); p.facts.Serving != 0 {
		t.Errorf("%d serve at the age of 4s, want 0: they need 5s", p.facts.Serving)
	}
	if p.pass(2 * time.Second); p.facts.Serving != 2 {
		t.Errorf("%d serve at the age of 6s, want 2", p.facts.Serving)
	}
}
