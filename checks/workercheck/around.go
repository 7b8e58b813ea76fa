package workercheck

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

// takeLoads takes the readings of CPU use.
func (t *Tracker) takeLoads(s *host.Snapshot) {
	for i := range s.Workers {
		t.members[s.Workers[i].ID].load.take(&s.Workers[i], s.At)
	}
	t.load.take(&s.Main.Process, s.At)
}

// takeQueue follows the accept queue of the instance's listener.
func (t *Tracker) takeQueue(s *host.Snapshot) {
	if l, ok := known(s); ok {
		t.queue.Observe(&l, s.DumpAt)
	}
}

// learnReady learns from our own connections how old a worker is before it
// serves, where that is longer than StartTime: they went unanswered while there
// was a worker, and then one was answered. The oldest worker was the first.
func (t *Tracker) learnReady(s *host.Snapshot, a Answer) {
	var oldest time.Duration
	for i := range s.Workers {
		if w := &s.Workers[i]; w.State == checks.ProcAlive && t.members[w.ID].listens && !t.members[w.ID].draining {
			if oldest == 0 || w.Born < oldest {
				oldest = w.Born
			}
		}
	}
	switch {
	case oldest == 0 || a.Look == "":
	case a.Look == checks.LocalUnanswered && a.Ended-oldest >= StartTime && a.Ended-oldest < readyMost:
		t.silent = a.Ended
	case a.Look == checks.LocalAnswered && t.silent > oldest && a.Ended-oldest < readyMost && t.mainHeld:
		t.ready, t.silent = a.Ended-oldest, 0
	case a.Look == checks.LocalAnswered:
		t.silent = 0
	}
}

// peace is how a process ends that was told to.
const peace = "exit 0"

// around fills in what is known beside the workers themselves.
func (t *Tracker) around(f *checks.WorkerFacts, s *host.Snapshot, a Answer, now time.Duration) {
	f.Minimum, f.OnDemand = t.Minimum, t.OnDemand || t.demand
	enough := f.Serving >= t.Minimum || f.MainServes || !t.served
	switch {
	case enough:
		t.below = 0
	case t.below == 0:
		t.below = s.At
	}
	if !enough {
		f.BelowFor = max(0, now-t.below)
	}
	// Beside workers that all live, what fails is something else that main runs.
	lost := t.lost != 0 && now-t.lost <= loopWithin || f.Serving < f.Expected
	if n, since := t.slots.looping(now, t.youngest()); n > 0 && lost && !f.MainServes {
		// In a fast loop births are met before the deaths that made room for them.
		f.LoopingSlots, f.LoopingFor = min(n, max(f.Expected, 1)), now-since
	}
	f.OOMKills = t.ooms.recent(now)
	f.MainGaveUp = s.GaveUp
	if f.StaleConfig = s.StaleConfig; s.StaleConfig != "" {
		f.StaleFor = max(0, now-s.StaleSince)
	}
	f.StoppingFor, f.Stopping = t.stop.For(now)
	if s.Main.Status == host.MainGone && s.Main.Unnamed && t.mains.exit == peace && !f.Stopping {
		f.StoppingFor, f.Stopping = max(0, now-s.Main.LastAlive), true // it put away its pid file and left
	}
	f.Local, f.LocalFails, f.LocalFor = a.Look, a.Fails, a.For
	f.Host = inside.Host(&s.Host, s.Cgroup)
	if f.Serving > 0 {
		t.mains.serves(s, t.since, !t.counted)
		t.counted = true
	}
	t.mains.fill(f, now)
}
