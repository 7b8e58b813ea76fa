package workercheck_test

import (
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

// child adds a child of main that does not hold the listener.
func (s *script) child(born time.Duration) int {
	i := s.bear(born)
	s.snap.Workers[i].Listens = false
	return i
}

// proves plays a story and reports the first proof, with what is served
// remembered by the judge, and the last facts.
type proves struct {
	*script
	proof string
	facts checks.WorkerFacts
}

func (p *proves) look(after time.Duration) checks.WorkerFacts {
	p.facts = p.script.look(after)
	p.facts.Local = p.local.Look
	if proof, ok := correlate.ProveWorkers(&p.facts, true); ok && p.proof == "" {
		p.proof = proof.Rule + " " + string(proof.Cause)
	}
	return p.facts
}

// pass looks every 25 ms for a while.
func (p *proves) pass(during time.Duration) {
	for end := p.now + during; p.now < end; {
		p.look(25 * ms)
	}
}

// lone is a main of 100 s that holds the listener, with no child that lives.
func lone(reaped bool) *proves {
	s := newScript(0)
	s.snap.Main.Reaped = reaped
	return &proves{script: s}
}

func TestTracker_AMainAloneWithItsListenerIsNeverProvenByItsChildren(t *testing.T) {
	unknown := host.Exit{}
	failed := host.Exit{Known: true, Code: 1}
	for name, tt := range map[string]struct {
		play    func() *proves
		serving int
	}{
		"it once reaped a child, and nothing is known of it yet": {func() *proves {
			p := lone(true)
			p.pass(60 * time.Second)
			return p
		}, 0},
		"it once reaped a child, and answers us": {func() *proves {
			p := lone(true)
			p.look(0)
			p.answered(5*ms, true)
			p.pass(5 * time.Second)
			return p
		}, 1},
		"it once reaped a child, and takes our connection without a word": {func() *proves {
			p := lone(true)
			p.look(0)
			p.answered(time.Second, true)
			p.local.Look = checks.LocalAccepted
			p.pass(5 * time.Second)
			return p
		}, 1},
		"it runs short programs in a row, exits unknown": {func() *proves {
			p := lone(false)
			p.look(0)
			for range 12 {
				p.child(p.now)
				p.pass(50 * ms)
				p.die(0, unknown)
				p.pass(50 * ms)
			}
			return p
		}, 1},
		"it runs short programs nobody sees": {func() *proves {
			p := lone(false)
			p.look(0)
			for range 12 {
				since := p.now
				p.now += 25 * ms
				p.unseen(since)
				p.look(0)
			}
			return p
		}, 1},
		"a child seen between fork and exec holds the listener for a moment": {func() *proves {
			p := lone(false)
			p.look(0)
			for range 6 {
				p.bear(p.now)
				p.look(5 * ms)
				p.snap.Workers[0].Listens = false
				p.pass(500 * ms)
				p.die(0, failed)
				p.pass(100 * ms)
			}
			return p
		}, 1},
		"the same for half a second, on a starved host": {func() *proves {
			p := lone(false)
			p.snap.Host.CPUPressure = 0.9
			p.look(0)
			for range 6 {
				p.bear(p.now)
				p.pass(500 * ms)
				p.snap.Workers[0].Listens = false
				p.pass(100 * ms)
				p.die(0, failed)
				p.pass(100 * ms)
			}
			return p
		}, 1},
		"its long child ends in peace": {func() *proves { // BGSAVE
			p := lone(false)
			p.look(0)
			p.child(p.now)
			p.pass(5 * time.Second)
			p.die(0, clean)
			p.pass(8 * time.Second)
			return p
		}, 1},
		"its long child is killed, and it had reaped one before we came": {func() *proves {
			p := lone(true)
			p.look(0)
			p.child(p.now)
			p.pass(5 * time.Second)
			p.die(0, killed)
			p.pass(8 * time.Second)
			return p
		}, 0},
		"it forks for each connection, ours included, and those fail": {func() *proves { // sshd
			p := lone(true)
			p.look(0)
			for range 20 {
				began := p.now
				p.child(p.now)
				p.look(20 * ms)
				p.die(0, failed)
				p.look(5 * ms)
				p.local = workercheck.Answer{Look: checks.LocalAnswered, Empty: true, Began: began + ms, Ended: began + 20*ms}
				p.pass(75 * ms)
			}
			return p
		}, 1},
		"its descriptors may not be read and it runs short programs": {func() *proves {
			p := lone(false)
			p.snap.Main.Process.Listens, p.snap.Main.Process.FDsUnknown = false, true
			p.look(0)
			for range 12 {
				i := p.child(p.now)
				p.snap.Workers[i].FDsUnknown = true
				p.pass(50 * ms)
				p.die(0, unknown)
				p.pass(50 * ms)
			}
			return p
		}, 1},
		"a tracer stops it for a while": {func() *proves {
			p := lone(false)
			p.look(0)
			p.snap.Main.Process.State, p.snap.Main.Process.Traced = checks.ProcStopped, true
			p.pass(4900 * ms)
			return p
		}, 1},
		"a tracer stops it at each call, and it answers": {func() *proves {
			p := lone(false)
			p.look(0)
			for range 8 {
				p.snap.Main.Process.State, p.snap.Main.Process.Traced = checks.ProcStopped, true
				p.pass(time.Second)
				p.snap.Main.Process.State, p.snap.Main.Process.Traced = checks.ProcAlive, false
				p.look(25 * ms)
			}
			return p
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := tt.play()
			if p.proof != "" || p.facts.Serving != tt.serving {
				t.Errorf("proof %q, %d serving: want none, %d; facts %+v", p.proof, p.facts.Serving, tt.serving, p.facts)
			}
		})
	}
}

func TestTracker_WhatIsTrueOfAMainAloneIsProvenAllTheSame(t *testing.T) {
	for name, tt := range map[string]struct {
		play func() *proves
		want string
	}{
		"stopped by a signal and silent": {func() *proves {
			p := lone(false)
			p.look(0)
			p.snap.Main.Process.State = checks.ProcStopped
			p.pass(time.Second)
			if p.proof != "" {
				t.Errorf("proof %q before a word of our own connection", p.proof)
			}
			p.local = workercheck.Answer{Look: checks.LocalUnanswered, Empty: true}
			p.pass(100 * ms)
			return p
		}, "P1d main_frozen"},
		"held by a debugger for 5 s and silent": {func() *proves {
			p := lone(false)
			p.look(0)
			p.snap.Main.Process.State, p.snap.Main.Process.Traced = checks.ProcStopped, true
			p.local = workercheck.Answer{Look: checks.LocalUnanswered, Empty: true}
			p.pass(5100 * ms)
			return p
		}, "P1d main_frozen"},
		"unknown to us, and silent for 3 s": {func() *proves {
			p := lone(true)
			p.look(0)
			p.local = workercheck.Answer{Look: checks.LocalUnanswered, Empty: true}
			p.pass(3100 * ms)
			return p
		}, "P1d workers_dead"},
		"stopped, its workers dead": {func() *proves {
			p := &proves{script: newScript(4)}
			p.look(0)
			p.snap.Main.Process.State = checks.ProcStopped
			p.dieAll(killed)
			p.pass(50 * ms)
			return p
		}, "P1d main_frozen"},
	} {
		t.Run(name, func(t *testing.T) {
			if p := tt.play(); p.proof != tt.want {
				t.Errorf("proof %q, want %q; facts %+v", p.proof, tt.want, p.facts)
			}
		})
	}
}

func TestTracker_AChildThatKeptTheListenerByMistakeIsMissedOnlyUntilMainAnswers(t *testing.T) {
	p := lone(false)
	p.look(0)
	p.bear(p.now) // no close-on-exec
	p.pass(5 * time.Second)
	p.die(0, killed)
	p.pass(1100 * ms)
	p.answered(5*ms, true)
	p.pass(10 * time.Second)
	for range 6 {
		p.child(p.now)
		p.pass(50 * ms)
		p.die(0, killed)
		since := p.now
		p.pass(50 * ms)
		p.unseen(since)
		p.pass(50 * ms)
	}
	if p.proof != "" || !p.facts.MainServes {
		t.Errorf("proof %q, main serves %t, want none, true", p.proof, p.facts.MainServes)
	}
}

func TestTracker_AChildOfAMainAloneIsAHelper(t *testing.T) {
	p := lone(false)
	p.look(0)
	p.child(p.now)
	p.pass(2 * time.Second)
	if w := p.facts.Workers; len(w) != 1 || w[0].Role != workercheck.RoleHelper || w[0].Serving || p.facts.LivingWorkers != 0 {
		t.Errorf("workers %+v, %d living; want one helper that does not serve, 0", w, p.facts.LivingWorkers)
	}
}

func TestTracker_AHelperSeenAsItWasForkedIsAHelperAllTheSame(t *testing.T) {
	for _, holds := range []time.Duration{10 * ms, 700 * ms} { // the latter on a host without a free CPU
		p := &proves{script: newScript(4)} // nginx and its cache loader
		p.look(0)
		i := p.bear(p.now)
		p.look(holds)
		p.snap.Workers[i].Listens = false
		p.pass(2 * time.Second)
		if p.facts.Serving != 4 || p.facts.LivingWorkers != 4 {
			t.Errorf("closed after %s: %d serve of %d living, want 4 of 4", holds, p.facts.Serving, p.facts.LivingWorkers)
		}
	}
}

func TestTracker_WorkersWithoutAnyListenerProveNothing(t *testing.T) {
	p := &proves{script: newScript(0)}
	p.snap.Main.Process.Listens = false
	i := p.child(910 * time.Second)
	p.look(0)
	p.die(i, clean)
	p.pass(10 * time.Second)
	for range 4 {
		p.child(p.now)
		p.pass(50 * ms)
		p.die(0, killed)
		p.pass(100 * ms)
	}
	if p.proof != "" || !p.facts.NoHolder {
		t.Errorf("proof %q, no holder %t, want none, true", p.proof, p.facts.NoHolder)
	}
}

func TestTracker_YoungWorkersThatAnswerBeforeTheyDieMakeNoServingMain(t *testing.T) {
	p := lone(true)
	p.look(0)
	for range 40 {
		began := p.now
		p.pass(25 * ms)
		p.bear(p.now) // holds the listener, never past its youth
		p.look(25 * ms)
		p.die(0, killed)
		p.look(25 * ms)
		p.local = workercheck.Answer{Look: checks.LocalAnswered, Empty: true, Began: began, Ended: p.now}
		p.look(25 * ms)
	}
	if p.facts.MainServes || p.facts.EverServed {
		t.Errorf("main serves %t, ever served %t, want neither", p.facts.MainServes, p.facts.EverServed)
	}
}
