package workercheck_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// four is a main with four workers that were looked at once.
func four() *proves {
	p := &proves{script: newScript(4)}
	p.look(0)
	return p
}

// loop kills all workers and replaces them, rounds times: they live for life
// and are replaced after gap.
func (p *proves) loop(rounds int, life, gap time.Duration, exit host.Exit) {
	for range rounds {
		n := len(p.snap.Workers)
		p.dieAll(exit)
		p.pass(gap)
		for range n {
			p.bear(p.now)
		}
		p.pass(life)
	}
}

func TestChain_WorkersThatServeForAMomentAndFail(t *testing.T) {
	for name, tt := range map[string]struct {
		play func(p *proves)
		want string
	}{
		"1.5 s each, killed":          {func(p *proves) { p.loop(5, 1500*ms, 100*ms, killed) }, "P1k workers_crash_looping"},
		"5 s each, killed":            {func(p *proves) { p.loop(5, 5*time.Second, 100*ms, killed) }, "P1k workers_crash_looping"},
		"1.5 s each, by a paced main": {func(p *proves) { p.loop(5, 1500*ms, time.Second, killed) }, "P1k workers_crash_looping"},
		"1.5 s each, out of step": {func(p *proves) {
			for range 8 {
				for range 4 {
					p.die(0, killed)
					p.pass(25 * ms)
					p.bear(p.now)
					p.pass(350 * ms)
				}
			}
		}, "P1k workers_crash_looping"},
		"1.5 s each, exit 0: recycled":              {func(p *proves) { p.loop(9, 1500*ms, 25*ms, clean) }, ""},
		"1.5 s each, exits unknown: not told apart": {func(p *proves) { p.loop(9, 1500*ms, 25*ms, host.Exit{}) }, ""},
		"0.5 s each, exit 0, answered: recycled": {func(p *proves) {
			p.local.Look = checks.LocalAnswered
			p.loop(9, 500*ms, 25*ms, clean)
		}, ""},
		"11 s each, killed":                  {func(p *proves) { p.loop(9, 11*time.Second, 100*ms, killed) }, "P1k workers_crash_looping"},
		"31 s each, killed: not a loop":      {func(p *proves) { p.loop(9, 31*time.Second, 100*ms, killed) }, ""},
		"killed twice within a minute":       {func(p *proves) { p.loop(2, 3*time.Second, 100*ms, killed) }, ""},
		"killed three times within a minute": {func(p *proves) { p.loop(3, 3*time.Second, 100*ms, killed) }, "P1k workers_crash_looping"},
		"1.5 s each, while one works on": {func(p *proves) {
			for range 9 {
				for range 3 {
					p.die(1, killed)
				}
				p.pass(100 * ms)
				for range 3 {
					p.bear(p.now)
				}
				p.pass(1500 * ms)
			}
		}, "P1k workers_crash_looping"},
		"one kill, and a main that waits 2 s": {func(p *proves) { p.loop(1, 5*time.Second, 2*time.Second, killed) }, ""},
		"a main that adds one a second (apache)": {func(p *proves) {
			p.dieAll(killed)
			p.pass(time.Second)
			p.bear(p.now)
			p.pass(time.Second)
			p.bear(p.now)
			p.pass(5 * time.Second)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := four()
			tt.play(p)
			if p.proof != tt.want {
				t.Errorf("proof %q, want %q; last facts %+v", p.proof, tt.want, p.facts)
			}
		})
	}
}

func TestChain_AfterALoopReplacementsServeOnceTheyAreTwiceAsOld(t *testing.T) {
	p := four()
	p.loop(5, 1500*ms, 100*ms, killed) // the last round of workers is left alive
	p.pass(1400 * ms)
	if p.facts.Serving != 0 {
		t.Errorf("%d serve at an age of %v, want 0: four before them died at 1.5s", p.facts.Serving, p.facts.Workers[0].Age)
	}
	p.pass(200 * ms)
	if p.facts.Serving != 4 {
		t.Errorf("%d serve at an age of %v, want 4", p.facts.Serving, p.facts.Workers[0].Age)
	}
}

// reload is what nginx does: new workers, and 100 ms later the old ones are
// told to leave. A calm observer is woken by the exits and sees both at once.
func (p *proves) reload(exit host.Exit, calm bool) {
	n := len(p.snap.Workers)
	born := p.now
	if !calm {
		for range n {
			p.bear(born)
		}
		p.pass(75 * ms)
	}
	p.now += 25 * ms
	for range n {
		p.die(0, exit)
	}
	if calm {
		p.now += 75 * ms
		for range n {
			p.bear(born)
		}
	}
}

func TestChain_AReloadEverySecondIsNoLoss(t *testing.T) {
	for name, exit := range map[string]host.Exit{"exit 0": clean, "exits unknown": {}} {
		for _, calm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, calm %t", name, calm), func(t *testing.T) {
				p := four()
				for range 10 {
					p.reload(exit, calm)
					p.pass(750 * ms)
				}
				if p.proof != "" || p.facts.Serving != 4 {
					t.Errorf("proof %q, %d serve, want none, 4", p.proof, p.facts.Serving)
				}
				p.loop(4, 25*ms, 100*ms, killed)
				if p.proof != "P1 workers_crash_looping" {
					t.Errorf("proof %q after a crash loop that followed, want P1", p.proof)
				}
			})
		}
	}
}

func TestChain_ALoopOfMoreWorkersThanAreExpectedYetIsALoop(t *testing.T) {
	p := four()
	for range 4 { // the pool grew a moment ago
		p.bear(p.now)
	}
	p.pass(time.Second)
	p.dieAll(killed)
	p.pass(25 * ms)
	for range 8 {
		p.bear(p.now)
	}
	for range 60 { // out of step: seven are always there
		p.pass(25 * ms)
		p.die(0, killed)
		p.bear(p.now)
	}
	if p.proof != "P1 workers_crash_looping" {
		t.Errorf("proof %q, want P1; facts %+v", p.proof, p.facts)
	}
}

func TestChain_AReloadWhoseWorkersCrashIsALoop(t *testing.T) {
	p := four()
	for range 4 { // they relieve, and die while the old ones still drain
		p.bear(p.now)
	}
	p.pass(50 * ms)
	for range 4 {
		p.die(4, killed)
	}
	for range 4 {
		p.bear(p.now)
	}
	p.pass(50 * ms)
	for range 4 {
		p.die(0, clean)
	}
	p.loop(5, 10*ms, 50*ms, killed)
	if p.proof != "P1 workers_crash_looping" {
		t.Errorf("proof %q, want P1; facts %+v", p.proof, p.facts)
	}
}

func TestChain_AGapInTheEventsDiscardsIt(t *testing.T) {
	p := four()
	p.loop(2, 10*ms, 100*ms, killed)
	p.dieAll(killed)
	if f := p.look(25 * ms); f.Chain != 2 {
		t.Fatalf("chain %d, want 2", f.Chain)
	}
	p.unseen(p.now)
	p.unseen(p.now)
	p.snap.Events = p.snap.Events[len(p.snap.Events)-1:] // the other was lost
	if f := p.look(25 * ms); f.Chain != 0 {
		t.Errorf("chain %d after a gap in the events, want 0", f.Chain)
	}
	p.bear(p.now)
	p.loop(4, 10*ms, 100*ms, killed)
	if p.proof != "P1 workers_crash_looping" {
		t.Errorf("proof %q, want P1: the loop went on", p.proof)
	}
}

func TestTracker_OneUnreadableProcessHidesNobodyElse(t *testing.T) {
	p := &proves{script: newScript(4)}
	p.snap.Main.Process.Listens, p.snap.Main.Process.FDsUnknown = false, true
	p.snap.FDsUnknown = "the descriptors of pid 101 may not be read"
	p.child(920 * time.Second) // a cache manager
	p.look(0)
	if p.facts.Serving != 4 || p.facts.LivingWorkers != 4 {
		t.Errorf("%d serve of %d living, want 4 of 4", p.facts.Serving, p.facts.LivingWorkers)
	}
	for range 4 {
		p.die(0, killed)
	}
	p.pass(2600 * ms)
	if p.proof != "P1d workers_dead" {
		t.Errorf("proof %q, want P1d: nothing but a helper is left", p.proof)
	}
}

// A script that main runs beside its workers, and that fails each time, is none of
// them (uwsgi's attached daemons, a cron-like child).
func TestChain_AScriptThatFailsBesideHealthyWorkersIsNoLoop(t *testing.T) {
	p := four()
	for range 20 {
		i := p.child(p.now)
		p.pass(300 * ms)
		p.die(i, host.Exit{Known: true, Code: 1})
		p.pass(3 * time.Second)
	}
	if p.proof != "" || p.facts.LoopingSlots != 0 || p.facts.Serving != 4 {
		t.Errorf("proof %q, %d slots loop, %d serve; want none, 0, 4", p.proof, p.facts.LoopingSlots, p.facts.Serving)
	}
}
