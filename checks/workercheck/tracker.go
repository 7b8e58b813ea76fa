package workercheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

const (
	// StartTime is the age from which a worker serves; chosen, until it is
	// learnt per generation.
	StartTime = time.Second
	// Tick is the grain of start ticks: a worker was born at most this long
	// after its Born.
	Tick = 10 * time.Millisecond
	// settle is how long a number of serving workers must hold to be expected.
	settle = 2 * time.Second
	// reloadOverlap is how long old and new workers may serve side by side
	// (JUDGING section 1: intent to reload, 30 s): until it is over, more
	// workers than expected may be a reload and raise nothing.
	reloadOverlap = 30 * time.Second
)

// RoleHelper is a child of main that never held the listener while workers do
// (nginx's cache manager): it never serves and is not missed.
const RoleHelper checks.Role = "helper"

// Tracker keeps what one snapshot cannot tell: what was learnt in this
// generation and the chain of failed replacements. It is pure: snapshots in,
// facts out. The zero value is ready. One instance, one goroutine.
type Tracker struct {
	seq   uint64 // of the last event taken
	sweep uint64 // of the last snapshot taken
	generation
	// lastExit is when a process last ended, in any generation.
	lastExit time.Duration
}

// generation is what is known of one life of main.
type generation struct {
	main      host.ID
	since     time.Duration // first seen
	members   map[host.ID]*member
	hold      bool // workers hold the listener when healthy
	served    bool
	lone      bool // main listens, and never had a child
	solo      bool // main answered us itself: it had no child all the while
	demand    bool // main forks on demand: it had no worker, and we were answered
	crashed   bool // a child died badly since a worker last served
	expected  int
	steady    []host.ID // who served when the number was last steady
	unsteady  bool      // one of steady died abnormally since
	noneLooks int
	lastSome  time.Duration // when someone was last known to serve
	lastBirth time.Duration // lower bound
	bornBy    time.Duration // upper bound of the last birth
	lastDeath time.Duration
	pending   []time.Duration // deaths not yet followed by a birth
	respawns  []time.Duration
	chain     chain
}

// member is a worker as remembered.
type member struct {
	held, draining, served bool
}

// Answer is what became of a local look, on the boot clock.
type Answer struct {
	Look checks.LocalLook
	// Empty: no worker lived when it began.
	Empty        bool
	Began, Ended time.Duration
}

// Observe takes a snapshot without trouble whose main is known, and returns
// the facts at now. answer is that of the last local look made on behalf of
// these facts.
func (t *Tracker) Observe(s host.Snapshot, answer Answer, now time.Duration) checks.WorkerFacts {
	if s.Main.Process.ID != t.main {
		t.generation = generation{main: s.Main.Process.ID, since: s.At, members: map[host.ID]*member{}}
	}
	t.learnHolders(&s)
	servedDeath := t.takeEvents(&s)
	workers := t.roles(&s)
	f := checks.WorkerFacts{
		Main:       process(&s.Main.Process, checks.RoleMain),
		Generation: t.main.String(),
		Workers:    workers,
	}
	serving := 0
	for i := range workers {
		if workers[i].Serving {
			serving++
		}
		if workers[i].Role == checks.RoleWorker && (workers[i].State == checks.ProcAlive || workers[i].State == checks.ProcStopped) {
			f.LivingWorkers++
		}
	}
	f.Serving = serving
	if f.MainServes = t.mainServes(&s, serving, f.LivingWorkers, answer); f.MainServes {
		f.Serving, f.Main.Serving = 1, true
	} else {
		t.learnExpected(&s, workers)
	}
	f.Expected = t.expected
	if f.MainServes {
		f.Expected = 1
	}
	if serving > 0 {
		t.crashed = false
	}
	t.count(&s, f.Serving, servedDeath)
	t.fill(&f, &s, now)
	return f
}

// learnHolders remembers which workers ever held the listener.
func (t *Tracker) learnHolders(s *host.Snapshot) {
	present := make(map[host.ID]bool, len(s.Workers))
	for i := range s.Workers {
		w := &s.Workers[i]
		present[w.ID] = true
		m := t.members[w.ID]
		if m == nil {
			m = &member{}
			t.members[w.ID] = m
		}
		if w.Listens {
			m.held, m.draining, t.hold = true, false, true
		}
	}
	// Those that left are needed until their death is taken from the events,
	// which is in this same snapshot.
	for id := range t.members {
		if !present[id] && s.Sweep != t.sweep && !deathPending(s, t.seq, id) {
			delete(t.members, id)
		}
	}
}

func deathPending(s *host.Snapshot, after uint64, id host.ID) bool {
	return slices.ContainsFunc(s.Events, func(e host.Event) bool { return e.Seq > after && e.Process == id })
}

// roles says who of the workers serves, drains or only helps.
func (t *Tracker) roles(s *host.Snapshot) []checks.Process {
	var newest uint64 // start ticks of the youngest that listens
	for i := range s.Workers {
		if w := &s.Workers[i]; w.Listens {
			newest = max(newest, w.StartTicks)
		}
	}
	readable := s.FDsUnknown == ""
	out := make([]checks.Process, 0, len(s.Workers))
	for i := range s.Workers {
		w := &s.Workers[i]
		m := t.members[w.ID]
		if readable && m.held && !w.Listens && w.State == checks.ProcAlive && newest > w.StartTicks {
			m.draining = true
		}
		p := process(w, checks.RoleWorker)
		old := w.Age >= StartTime
		switch {
		case m.draining:
			p.Role = checks.RoleDraining
		case readable && t.hold && !m.held && old:
			p.Role = RoleHelper
		default:
			p.Serving = w.State == checks.ProcAlive && old && !w.ExeChanged
		}
		m.served = m.served || p.Serving
		out = append(out, p)
	}
	return out
}

// mainServes decides whether main serves by itself. A worker that answered is
// no proof of that: while replacements fail, one may answer before it dies.
func (t *Tracker) mainServes(s *host.Snapshot, serving, living int, a Answer) bool {
	p := &s.Main.Process
	if s.Main.Status != host.MainAlive || p.State != checks.ProcAlive || p.Age < StartTime {
		return false
	}
	listens := p.Listens || s.FDsUnknown != ""
	if listens && living == 0 && len(t.members) == 0 && !s.Main.Reaped && t.lastBirth == 0 {
		t.lone = true
	}
	// The sweep must be younger than the answer, or it lacks births before it.
	if listens && a.Look == checks.LocalAnswered && a.Empty && s.At >= a.Ended {
		switch {
		case t.bornBy < a.Began && (!t.crashed || a.Began-t.bornBy >= StartTime):
			t.solo = true // in a loop, a birth may hide behind a death
		case !t.crashed:
			t.demand = true
		}
	}
	switch {
	case t.solo && !t.hold && p.Listens:
		return true // its children are no workers
	case serving > 0:
		return false
	}
	return t.lone && living == 0 || t.solo && !t.crashed || t.demand
}

// learnExpected raises and lowers the number of workers expected.
func (t *Tracker) learnExpected(s *host.Snapshot, workers []checks.Process) {
	stable, serving, steady := 0, []host.ID{}, true
	for i := range workers {
		w, p := &s.Workers[i], &workers[i]
		if !p.Serving {
			steady = steady && p.Role != checks.RoleWorker
			continue
		}
		serving = append(serving, w.ID)
		held := w.Age - StartTime
		steady = steady && held >= settle
		early := t.expected == 0 || w.Born-s.Main.Process.Born < reloadOverlap
		if held >= reloadOverlap || early && held >= settle {
			stable++
		}
	}
	t.expected = max(t.expected, stable)
	if !steady || len(serving) == 0 {
		return
	}
	replaced := len(t.steady) > 0 && !slices.ContainsFunc(t.steady, func(id host.ID) bool { return slices.Contains(serving, id) })
	if replaced && !t.unsteady {
		t.expected = len(serving)
	}
	t.steady, t.unsteady = serving, false
}

// count keeps what concerns consecutive looks.
func (t *Tracker) count(s *host.Snapshot, serving int, servedDeath bool) {
	fresh := s.Sweep - t.sweep // 0 if only the listeners are newer
	t.sweep = s.Sweep
	switch {
	case serving > 0:
		t.served = true
		t.noneLooks, t.lastSome = 0, s.At
		t.chain = chain{}
		if serving >= t.expected {
			t.pending = nil
		}
	case t.noneLooks == 0 || servedDeath:
		t.noneLooks = 1
	default:
		t.noneLooks += int(fresh)
	}
}

// fill computes the durations, which end at now.
func (t *Tracker) fill(f *checks.WorkerFacts, s *host.Snapshot, now time.Duration) {
	f.EverServed = t.served
	f.Respawn = median(t.respawns)
	if s.Main.Status == host.MainGone {
		f.Main.State = checks.ProcGone
		if s.Main.LastAlive > 0 {
			f.MainGoneFor = now - s.Main.LastAlive
		}
	}
	if f.Serving > 0 {
		return
	}
	f.NoneLooks = t.noneLooks
	f.NoneFor = now - cmp.Or(t.lastSome, t.since)
	f.NoBirthFor = max(0, now-max(t.lastBirth, t.lastDeath, cmp.Or(t.lastSome, t.since)))
	c := &t.chain
	if c.died == 0 {
		return
	}
	f.Chain, f.Died, f.DiedAge = c.links, c.died, median(c.ages)
	if c.links > 0 {
		f.ChainFor = c.last - c.began
	}
	f.Exits = make(map[string]int, len(c.exits))
	for k, v := range c.exits {
		f.Exits[k] = v
	}
}

func process(p *host.Process, role checks.Role) checks.Process {
	return checks.Process{PID: p.PID, StartTicks: p.StartTicks, Comm: p.Comm, State: p.State, Role: role, Age: p.Age, Listens: p.Listens}
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2]
}
