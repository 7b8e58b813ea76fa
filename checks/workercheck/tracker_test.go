package workercheck_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

const ms = time.Millisecond

// script plays the host observer for one instance: a clock, the processes
// there are, and the events of the next sweep.
type script struct {
	tracker workercheck.Tracker
	snap    host.Snapshot
	now     time.Duration
	nextPID int
	local   workercheck.Answer
}

// newScript is a main of 100 s of age, which holds the listener, and n workers
// of 90 s, which do too.
func newScript(n int) *script {
	s := &script{now: 1000 * time.Second, nextPID: 100}
	s.snap.Main = host.Main{Status: host.MainAlive, Process: s.process(900 * time.Second)}
	s.event(host.Event{Kind: host.MainFound})
	for range n {
		s.bear(910 * time.Second)
	}
	return s
}

func (s *script) process(born time.Duration) host.Process {
	s.nextPID++
	born = born / workercheck.Tick * workercheck.Tick
	return host.Process{ID: host.ID{PID: s.nextPID, StartTicks: uint64(born / workercheck.Tick)}, Born: born, State: checks.ProcAlive, Listens: true}
}

func (s *script) event(e host.Event) {
	e.Seq, e.Main = 1, s.snap.Main.Process.ID
	if n := len(s.snap.Events); n > 0 {
		e.Seq = s.snap.Events[n-1].Seq + 1
	}
	s.snap.Events = append(s.snap.Events, e)
}

// bear adds a worker born at a time, and returns its index.
func (s *script) bear(born time.Duration) int {
	p := s.process(born)
	s.snap.Workers = append(s.snap.Workers, p)
	s.event(host.Event{Kind: host.Birth, Process: p.ID, Born: p.Born, At: s.now})
	return len(s.snap.Workers) - 1
}

var (
	killed = host.Exit{Known: true, Signal: 9}
	clean  = host.Exit{Known: true}
)

// die ends worker i now.
func (s *script) die(i int, exit host.Exit) {
	p := s.snap.Workers[i]
	s.snap.Workers = append(append([]host.Process{}, s.snap.Workers[:i]...), s.snap.Workers[i+1:]...)
	s.event(host.Event{Kind: host.Death, Process: p.ID, Born: p.Born, At: s.now, Exit: exit})
}

func (s *script) dieAll(exit host.Exit) {
	for len(s.snap.Workers) > 0 {
		s.die(0, exit)
	}
}

// unseen records a worker that lived between two sweeps.
func (s *script) unseen(since time.Duration) {
	s.event(host.Event{Kind: host.Unseen, Born: since, At: s.now})
}

// look sweeps after a while and returns the facts.
func (s *script) look(after time.Duration) checks.WorkerFacts {
	s.now += after
	s.snap.Sweep++
	s.snap.At = s.now
	s.snap.Main.Process.Age = s.now - s.snap.Main.Process.Born
	if s.snap.Main.Status == host.MainAlive {
		s.snap.Main.LastAlive = s.now
	}
	workers := append([]host.Process{}, s.snap.Workers...)
	for i := range workers {
		workers[i].Age = s.now - workers[i].Born
	}
	snap := s.snap
	snap.Workers = workers
	return s.tracker.Observe(snap, s.local, s.now)
}

// numbers are the facts that tables compare.
type numbers struct{ Serving, Expected, NoneLooks, Living, Chain, Died int }

func of(f checks.WorkerFacts) numbers {
	return numbers{f.Serving, f.Expected, f.NoneLooks, f.LivingWorkers, f.Chain, f.Died}
}

func TestTracker(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(s *script) checks.WorkerFacts
		want numbers
	}{
		{"four old workers serve at first sight and are expected at once", func(s *script) checks.WorkerFacts {
			return s.look(0)
		}, numbers{Serving: 4, Expected: 4, Living: 4}},
		{"one kill of all, replaced, is no chain", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.look(25 * ms)
			s.now += 75 * ms
			for range 4 {
				s.bear(s.now)
			}
			s.look(0)
			return s.look(25 * ms)
		}, numbers{Expected: 4, NoneLooks: 3, Living: 4}},
		{"three rounds of replacements that die make a chain of three, siblings counted", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			for range 3 {
				s.look(25 * ms)
				s.now += 75 * ms
				for range 4 {
					s.bear(s.now)
				}
				s.look(5 * ms)
				s.now += 5 * ms
				s.dieAll(killed)
			}
			return s.look(0)
		}, numbers{Expected: 4, NoneLooks: 7, Chain: 3, Died: 12}},
		{"clean exits at an age under a second count too", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(clean)
			s.look(25 * ms)
			s.now += 75 * ms
			s.bear(s.now)
			s.look(10 * ms)
			s.die(0, clean)
			return s.look(25 * ms)
		}, numbers{Expected: 4, NoneLooks: 3, Chain: 1, Died: 1}},
		{"workers never seen between sweeps make a chain as well", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.look(25 * ms)
			for range 3 {
				since := s.now
				s.now += 25 * ms
				s.unseen(since)
				s.look(0)
			}
			return s.look(25 * ms)
		}, numbers{Expected: 4, NoneLooks: 5, Chain: 3, Died: 3}},
		{"an unseen child of main beside a living replacement is no link", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.now += 100 * ms
			s.bear(s.now)
			s.look(200 * ms)
			since := s.now
			s.now += 25 * ms
			s.unseen(since)
			return s.look(0)
		}, numbers{Expected: 4, NoneLooks: 2, Living: 1}},
		{"a replacement born in the tick of the death is no link, for it may be a sibling", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.now += 5 * ms
			s.dieAll(killed)
			s.bear(s.now)
			s.now += ms
			s.dieAll(killed)
			return s.look(25 * ms)
		}, numbers{Expected: 4, NoneLooks: 1, Died: 1}},
		{"while one worker goes on serving there is no chain", func(s *script) checks.WorkerFacts {
			s.look(0)
			for range 5 {
				s.die(len(s.snap.Workers)-1, killed)
				s.look(25 * ms)
				s.now += 75 * ms
				s.bear(s.now)
				s.look(5 * ms)
			}
			s.die(len(s.snap.Workers)-1, killed)
			return s.look(25 * ms)
		}, numbers{Serving: 3, Expected: 4, Living: 3}},
		{"a worker that becomes serving resets the chain", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.look(100 * ms)
			s.bear(s.now)
			s.now += 10 * ms
			s.dieAll(killed)
			s.look(100 * ms)
			s.bear(s.now)
			return s.look(time.Second)
		}, numbers{Serving: 1, Expected: 4, Living: 1}},
		{"stopped workers and zombies do not serve, and only the stopped live", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.snap.Workers[0].State, s.snap.Workers[1].State = checks.ProcStopped, checks.ProcStopped
			s.snap.Workers[2].State, s.snap.Workers[3].State = checks.ProcZombie, checks.ProcZombie
			return s.look(time.Second)
		}, numbers{Expected: 4, NoneLooks: 1, Living: 2}},
		{"a worker that became another program does not serve", func(s *script) checks.WorkerFacts {
			s.snap.Workers[0].ExeChanged = true
			return s.look(0)
		}, numbers{Serving: 3, Expected: 3, Living: 4}},
		{"after a reload the old workers drain and are not counted", func(s *script) checks.WorkerFacts {
			s.look(0)
			for range 4 {
				s.bear(s.now)
			}
			for i := range 4 {
				s.snap.Workers[i].Listens = false
			}
			return s.look(1500 * ms)
		}, numbers{Serving: 4, Expected: 4, Living: 4}},
		{"a reload to fewer workers lowers what is expected", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.bear(s.now)
			s.bear(s.now)
			for i := range 4 {
				s.snap.Workers[i].Listens = false
			}
			s.look(1500 * ms)
			for range 4 {
				s.die(0, clean)
			}
			return s.look(2 * time.Second)
		}, numbers{Serving: 2, Expected: 2, Living: 2}},
		{"a crash that leaves fewer workers lowers nothing", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.bear(s.now)
			s.bear(s.now)
			s.look(10 * ms)
			return s.look(10 * time.Second)
		}, numbers{Serving: 2, Expected: 4, Living: 2}},
		{"old and new workers that serve side by side for a while raise nothing", func(s *script) checks.WorkerFacts {
			s.look(0)
			for range 4 {
				s.bear(s.now)
			}
			return s.look(20 * time.Second)
		}, numbers{Serving: 8, Expected: 4, Living: 8}},
		{"a pool that grew for good is expected to stay", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.bear(s.now)
			return s.look(32 * time.Second)
		}, numbers{Serving: 5, Expected: 5, Living: 5}},
		{"a helper that never held the listener is neither serving nor missed", func(s *script) checks.WorkerFacts {
			i := s.bear(920 * time.Second)
			s.snap.Workers[i].Listens = false
			s.look(0)
			for range 4 {
				s.die(0, killed)
			}
			return s.look(25 * ms)
		}, numbers{Expected: 4, NoneLooks: 1}},
		{"workers that lost their listener by shutdown still serve", func(s *script) checks.WorkerFacts {
			s.look(0)
			for i := range s.snap.Workers {
				s.snap.Workers[i].Listens = false
			}
			return s.look(time.Second)
		}, numbers{Serving: 4, Expected: 4, Living: 4}},
		{"a new main is a new generation that has to serve first", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.look(100 * ms)
			s.snap.Main.Process = s.process(s.now)
			s.bear(s.now)
			return s.look(100 * ms)
		}, numbers{NoneLooks: 1, Living: 1}},
		{"events are taken once, also when only the listeners are newer", func(s *script) checks.WorkerFacts {
			s.look(0)
			s.dieAll(killed)
			s.look(25 * ms)
			s.snap.Sweep--
			s.look(25 * ms)
			return s.tracker.Observe(s.snap, workercheck.Answer{}, s.now)
		}, numbers{Expected: 4, NoneLooks: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, of(tt.play(newScript(4)))); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTracker_LearnsRespawnAndDurations(t *testing.T) {
	s := newScript(1)
	s.look(0)
	s.now += 200 * ms
	s.die(0, killed)
	died := s.now
	s.look(0)
	s.now += 100 * ms
	s.bear(s.now)
	s.look(0)
	s.now += 10 * ms
	s.die(0, host.Exit{Known: true, Code: 13})
	s.look(0)
	s.now += 100 * ms
	s.bear(s.now)
	s.now += 10 * ms
	s.dieAll(host.Exit{})
	got := s.look(90 * ms)
	want := checks.WorkerFacts{EverServed: true, NoneLooks: 4, NoneFor: s.now - died, NoBirthFor: 90 * ms,
		Chain: 2, ChainFor: 220 * ms, Died: 2, DiedAge: 10 * ms, Exits: map[string]int{"exit 13": 1, "unknown": 1}, Respawn: 110 * ms, Expected: 1,
		LoopingSlots: 1, LoopingFor: s.now - died}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(checks.WorkerFacts{}, "Main", "Generation", "Workers")); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestTracker_NoBirthCountsFromTheDeathNotFromTheOldBirth(t *testing.T) {
	s := newScript(4)
	s.look(0)
	s.now += 400 * ms
	s.dieAll(killed)
	if got := s.look(100 * ms).NoBirthFor; got != 100*ms {
		t.Errorf("NoBirthFor = %v, want 100ms", got)
	}
	if got := s.look(2500 * ms).NoBirthFor; got != 2600*ms {
		t.Errorf("NoBirthFor = %v, want 2.6s", got)
	}
}

// answered is a local look that began a while ago and has just been answered.
func (s *script) answered(ago time.Duration, empty bool) {
	s.local = workercheck.Answer{Look: checks.LocalAnswered, Empty: empty, Began: s.now - ago, Ended: s.now}
}

func TestTracker_MainServesByItself(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(s *script) checks.WorkerFacts
		want bool
	}{
		{"it listens and never had a child", func(s *script) checks.WorkerFacts {
			return s.look(0)
		}, true},
		{"not if it once reaped a child: its workers may all be dead", func(s *script) checks.WorkerFacts {
			s.snap.Main.Reaped = true
			return s.look(0)
		}, false},
		{"it answered us and had no child all the while", func(s *script) checks.WorkerFacts {
			s.snap.Main.Reaped = true
			s.look(time.Second)
			s.answered(5*ms, true)
			return s.look(25 * ms)
		}, true},
		{"a lone server goes on serving when a child of its fails", func(s *script) checks.WorkerFacts {
			s.snap.Main.Reaped = true
			s.look(time.Second)
			s.answered(5*ms, true)
			s.look(25 * ms)
			i := s.bear(s.now)
			s.snap.Workers[i].Listens = false
			s.look(10 * ms)
			s.die(0, killed)
			return s.look(25 * ms)
		}, true},
		{"not if the sweep is older than the answer", func(s *script) checks.WorkerFacts {
			s.snap.Main.Reaped = true
			s.look(time.Second)
			s.answered(0, true)
			s.local.Ended += time.Minute
			return s.look(25 * ms)
		}, false},
		{"an on-demand pool whose workers left in peace answers by a new one", func(s *script) checks.WorkerFacts {
			s.bear(910 * time.Second)
			s.look(0)
			s.dieAll(clean)
			s.look(time.Second)
			s.bear(s.now)
			s.now += 5 * ms
			s.answered(10*ms, true)
			return s.look(25 * ms)
		}, true},
		{"not while workers live that may have answered", func(s *script) checks.WorkerFacts {
			s.bear(910 * time.Second)
			s.look(0)
			s.dieAll(clean)
			s.look(100 * ms)
			s.bear(s.now)
			s.look(500 * ms)
			s.answered(10*ms, false)
			return s.look(25 * ms)
		}, false},
		{"not if workers were killed and a new one answered", func(s *script) checks.WorkerFacts {
			s.bear(910 * time.Second)
			s.look(0)
			s.dieAll(killed)
			s.look(time.Second)
			s.bear(s.now)
			s.now += 5 * ms
			s.answered(10*ms, true)
			return s.look(25 * ms)
		}, false},
		{"not for an on-demand pool whose workers begin to fail", func(s *script) checks.WorkerFacts {
			s.bear(910 * time.Second)
			s.look(0)
			s.dieAll(clean)
			s.look(time.Second)
			s.bear(s.now)
			s.now += 5 * ms
			s.answered(10*ms, true)
			s.look(25 * ms)
			s.dieAll(killed)
			return s.look(25 * ms)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.play(newScript(0))
			if f.MainServes != tt.want || tt.want && (f.Serving != 1 || f.Expected != 1 || f.NoneLooks != 0) {
				t.Errorf("main serves %t, %d of %d, want %t: %+v", f.MainServes, f.Serving, f.Expected, tt.want, f)
			}
		})
	}
}

func TestTracker_AnOnDemandPoolThatFailsMakesAChain(t *testing.T) {
	s := newScript(1)
	s.look(0)
	s.dieAll(clean)
	s.look(time.Second)
	s.bear(s.now)
	s.answered(0, true)
	s.look(25 * ms)
	for range 4 {
		s.now += 100 * ms
		s.dieAll(killed)
		s.look(0)
		s.now += 100 * ms
		s.bear(s.now)
		s.look(0)
	}
	if f := s.look(25 * ms); f.Chain != 3 || f.MainServes || f.Serving != 0 {
		t.Errorf("facts = %+v, want a chain of 3 and nobody serving", f)
	}
}

func TestTracker_MainGoneKeepsItsGeneration(t *testing.T) {
	s := newScript(2)
	first := s.look(0)
	s.snap.Main.Status = host.MainGone
	f := s.look(700 * ms)
	if f.Main.State != checks.ProcGone || f.MainGoneFor != 700*ms || f.Generation != first.Generation || f.Serving != 2 {
		t.Errorf("facts = %+v, want main gone for 700ms, generation %s, 2 orphans serving", f, first.Generation)
	}
}

// However births, deaths and looks fall: a chain never counts more than the
// deaths, never spans more than the time since somebody surely served, and is 0
// while anybody serves.
func TestTracker_ChainIsNeverMoreThanHappened(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScript(rapid.IntRange(1, 4).Draw(rt, "workers"))
		s.look(0)
		deaths, sure := 0, s.now
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				s.now += time.Duration(rapid.IntRange(0, 300).Draw(rt, "wait")) * ms
				s.bear(s.now)
			case 2, 3:
				if n := len(s.snap.Workers); n > 0 {
					s.now += time.Duration(rapid.IntRange(0, 40).Draw(rt, "life")) * ms
					s.die(rapid.IntRange(0, n-1).Draw(rt, "who"), killed)
					deaths++
				}
			case 4:
				s.now += time.Duration(rapid.IntRange(1, 1500).Draw(rt, "pause")) * ms
			}
			f := s.look(ms)
			for _, w := range f.Workers {
				if w.Serving && w.Age >= 10*time.Second {
					sure = s.now
				}
			}
			switch {
			case f.Chain > f.Died || f.Died > deaths:
				rt.Fatalf("chain %d, died %d of %d deaths", f.Chain, f.Died, deaths)
			case f.Serving > 0 && (f.Chain > 0 || f.NoneLooks > 0):
				rt.Fatalf("%d serve, yet chain %d, none in %d looks", f.Serving, f.Chain, f.NoneLooks)
			case f.ChainFor > s.now-sure:
				rt.Fatalf("chain over %v, somebody surely served %v ago", f.ChainFor, s.now-sure)
			case f.NoneLooks > math.MaxInt32 || f.NoBirthFor < 0 || f.NoBirthFor > f.NoneFor:
				rt.Fatalf("none looks %d, no birth for %v of %v", f.NoneLooks, f.NoBirthFor, f.NoneFor)
			}
		}
	})
}

// Half of the workers die before it could be learnt how many there should be: as
// many as were born with main.
func TestTracker_ExpectsTheFirstWorkersIfSomeDieEarly(t *testing.T) {
	s := &script{now: 100 * time.Second, nextPID: 100}
	s.snap.Main = host.Main{Status: host.MainAlive, Process: s.process(100 * time.Second)}
	s.event(host.Event{Kind: host.MainFound})
	for range 4 {
		s.bear(100 * time.Second)
	}
	s.look(500 * ms)
	if f := s.look(time.Second); f.Expected != 0 || f.Serving != 4 {
		t.Fatalf("at 1.5 s %d of %d serve, want 4 of 0: nothing is learnt yet", f.Serving, f.Expected)
	}
	s.die(3, killed)
	s.die(2, killed)
	if f := s.look(100 * ms); f.Expected != 4 || f.Serving != 2 {
		t.Errorf("%d of %d serve, want 2 of 4", f.Serving, f.Expected)
	}
}
