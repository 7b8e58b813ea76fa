package workercheck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

const (
	// StartTime is the least age from which a worker serves; chosen. It is longer
	// where that is learnt, readyMost at the most (chosen: half the start
	// deadline).
	StartTime = time.Second
	readyMost = 30 * time.Second
	// Tick is the grain of start ticks: a worker was born at most this long
	// after its Born.
	Tick = 10 * time.Millisecond
	// outlived is the age from which a replacement is no part of a loop any more;
	// chosen: long enough for several attempts in the minute after a deploy.
	outlived = 10 * time.Second
	// loopLinks is the length of chain from which reaching StartTime is no sign
	// of health (JUDGING section 3, P1: 3 replacements).
	loopLinks = 3
	// settle is how long a number of serving workers must hold to be expected.
	settle = 2 * time.Second
	// firstBatch is how soon after main the first workers are born; chosen: masters
	// fork them in milliseconds, and nobody reloads within it.
	firstBatch = 2 * time.Second
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
	// Minimum and OnDemand are as in Config; set before the first snapshot.
	Minimum  int
	OnDemand bool

	seq   uint64 // of the last event taken
	sweep uint64 // of the last snapshot taken
	generation
	// Of any generation:
	lastExit time.Duration // when a process last ended
	mains    mains
	ooms     ooms
	stop     inside.Stop
	ready    time.Duration // the age from which a worker serves, if that is learnt; 0 if not
}

// generation is what is known of one life of main.
type generation struct {
	main      host.ID
	since     time.Duration // first seen
	members   map[host.ID]*member
	holders         // who of this generation holds the listener, see self.go
	still     still // main
	load      load  // main's
	slots     slots
	queue     inside.Queue  // of the listener that connects to them
	below     time.Duration // since when fewer than the minimum serve; 0 if enough do
	silent    time.Duration // when a look of ours last went unanswered while workers were there to answer
	served    bool
	crashed   bool // a worker died badly since one last served
	expected  int
	first     int           // the most workers serving that were born with main
	lost      time.Duration // when a worker that had served died badly, last; 0 if none has
	steady    []host.ID     // who served when the number was last steady
	unsteady  bool          // one of steady died abnormally since
	counted   bool          // the first serving worker was seen
	noneLooks int
	lastSome  time.Duration // when someone was last known to serve
	lastBirth time.Duration // lower bound
	bornBy    time.Duration // upper bound of the last birth
	lastDeath time.Duration
	pending   []vacancy // deaths not yet followed by a birth, oldest first
	respawns  []time.Duration
	chain     chain
}

// member is a worker as remembered.
type member struct {
	held     bool          // the listener, past its youth
	heldAge  time.Duration // when last seen to hold it
	listens  bool          // when last seen
	draining bool
	served   bool
	// replacement: born into the place of one that died badly.
	replacement bool
	// relief: born while others served and nobody was missed, as on a reload.
	relief bool
	still  still
	load   load
}

// vacancy is a death that a birth has not yet made good.
type vacancy struct {
	at  time.Duration
	bad bool
}

// Answer is what became of a local look, on the boot clock.
type Answer = inside.Answer

// Observe takes a snapshot without trouble whose main is known, and returns
// the facts at now. answer is that of the last local look made on behalf of
// these facts.
func (t *Tracker) Observe(s host.Snapshot, answer Answer, now time.Duration) checks.WorkerFacts {
	if s.Main.Process.ID != t.main {
		t.generation = generation{main: s.Main.Process.ID, since: s.At, members: map[host.ID]*member{}}
	}
	t.learnHolders(&s)
	t.excuseTracers(&s)
	t.takeLoads(&s)
	servedDeath := t.takeEvents(&s)
	t.stop.Observe(&s)
	t.ooms.take(&s)
	t.takeQueue(&s)
	t.learnReady(&s, answer)
	workers, proven := t.roles(&s)
	f := checks.WorkerFacts{
		Main:       inside.Process(&s.Main.Process, checks.RoleMain, now),
		Generation: t.main.String(),
		Workers:    workers,
		FDsUnknown: s.FDsUnknown,
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
	f.Expected = max(t.expected, t.Minimum)
	if f.MainServes {
		f.Expected = 1
	}
	if serving > 0 {
		t.crashed = false
	}
	t.count(&s, f.Serving, servedDeath)
	if f.MainServes || proven {
		t.chain = chain{}
	}
	f.NoHolder = !t.hold && !t.hidden
	t.fill(&f, &s, now)
	t.countStuck(&f, &s, now)
	t.around(&f, &s, answer, now)
	return f
}

func deathPending(s *host.Snapshot, after uint64, id host.ID) bool {
	return slices.ContainsFunc(s.Events, func(e host.Event) bool { return e.Seq > after && e.Process == id })
}

// roles says who of the workers serves, drains or only helps. proven says that
// one serves who replaced nobody that failed, or has outlived suspicion.
func (t *Tracker) roles(s *host.Snapshot) (out []checks.Process, proven bool) {
	var newest uint64 // start ticks of the youngest that listens
	for i := range s.Workers {
		if w := &s.Workers[i]; w.Listens {
			newest = max(newest, w.StartTicks)
		}
	}
	out = make([]checks.Process, 0, len(s.Workers))
	for i := range s.Workers {
		w := &s.Workers[i]
		m := t.members[w.ID]
		if !w.FDsUnknown && m.held && !w.Listens && w.State == checks.ProcAlive && newest > w.StartTicks {
			m.draining = true
		}
		if strings.Contains(w.Title, inside.Leaving) && (newest > 0 || s.Main.Process.Listens) {
			m.draining = true // said by itself; if nobody listens, all of them are stopping
		}
		p := inside.Process(w, checks.RoleWorker, s.At)
		switch {
		case m.draining:
			p.Role = checks.RoleDraining
		case t.helper(w, m):
			p.Role = RoleHelper
		default:
			grown := w.Age >= t.startTime(m) || m.relief && w.Listens
			p.Serving = w.State == checks.ProcAlive && grown && !w.ExeChanged
		}
		m.served = m.served || p.Serving
		proven = proven || p.Serving && (!m.replacement || w.Age >= outlived)
		out = append(out, p)
	}
	return out, proven
}

// helper reports whether a child of main is none of those that serve.
func (t *Tracker) helper(w *host.Process, m *member) bool {
	if w.FDsUnknown || w.Listens || m.held {
		return false
	}
	return t.alone() || t.hold && w.Age >= StartTime
}

// startTime is the age from which a worker serves. In a loop whose links reach
// it, that age says nothing: then it is twice what any of them reached.
func (t *Tracker) startTime(m *member) time.Duration {
	if !m.replacement || t.chain.links < loopLinks {
		return t.youngest()
	}
	return max(t.youngest(), min(2*t.chain.oldest, outlived))
}

// youngest is the age from which a worker serves as far as is learnt.
func (t *Tracker) youngest() time.Duration { return max(StartTime, t.ready) }

// learnExpected raises and lowers the number of workers expected.
func (t *Tracker) learnExpected(s *host.Snapshot, workers []checks.Process) {
	stable, first, serving, steady := 0, 0, []host.ID{}, true
	for i := range workers {
		w, p := &s.Workers[i], &workers[i]
		if !p.Serving {
			steady = steady && p.Role != checks.RoleWorker
			continue
		}
		if w.Born-s.Main.Process.Born < firstBatch {
			first++
		}
		serving = append(serving, w.ID)
		held := w.Age - t.youngest()
		steady = steady && held >= settle
		early := t.expected == 0 || w.Born-s.Main.Process.Born < reloadOverlap
		if held >= reloadOverlap || early && held >= settle {
			stable++
		}
	}
	t.expected, t.first = max(t.expected, stable), max(t.first, first)
	if !steady || len(serving) == 0 {
		return
	}
	replaced := len(t.steady) > 0 && !slices.ContainsFunc(t.steady, func(id host.ID) bool { return slices.Contains(serving, id) })
	// A pool that was declared to shrink, or seen to be at zero, may also be smaller.
	shrunk := (t.OnDemand || t.demand) && len(serving) < t.expected && s.At-t.lastDeath >= reloadOverlap
	if (replaced || shrunk) && !t.unsteady {
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
		if t.mains.last == s.Main.Process.ID { // told by the kernel
			f.MainGoneFor = max(0, now-t.mains.at)
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

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2]
}
