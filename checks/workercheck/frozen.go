package workercheck

import (
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

const (
	// tracedFor is how long a tracer must have a process stopped before it counts
	// as stopped (JUDGING section 3, P3): strace stops it at each system call.
	tracedFor = 5 * time.Second
	// frozenApart is how far two looks at a stopped process must lie apart
	// (JUDGING section 3, P3).
	frozenApart = 100 * time.Millisecond
)

// still is since when a process has been stopped; zero while it is not.
type still struct{ since time.Duration }

// see takes the state of a process at a sweep. One that a tracer has stopped for
// less than tracedFor is taken as alive.
func (t *still) see(p *host.Process, at time.Duration) {
	switch {
	case p.State != checks.ProcStopped:
		t.since = 0
		return
	case t.since == 0 && p.StoppedSince > 0:
		t.since = min(p.StoppedSince, at)
	case t.since == 0:
		t.since = at
	}
	if p.Traced && !p.CgroupFrozen && at-t.since < tracedFor {
		p.State = checks.ProcAlive
	}
}

// excuseTracers sees who is stopped, in a copy of the snapshot's workers.
func (t *Tracker) excuseTracers(s *host.Snapshot) {
	s.Workers = slices.Clone(s.Workers) // the snapshot is others' too
	for i := range s.Workers {
		t.members[s.Workers[i].ID].still.see(&s.Workers[i], s.At)
	}
	t.still.see(&s.Main.Process, s.At)
}

// countStuck counts the workers that are frozen, spinning, or out of
// descriptors. Those that drain or only help are none of them.
func (t *Tracker) countStuck(f *checks.WorkerFacts, s *host.Snapshot, now time.Duration) {
	count := func(p *checks.Process, stopped still, l *load) {
		p.CPU = l.share()
		if stopped.since > 0 {
			p.StoppedFor = max(0, now-stopped.since)
		}
		part := p.Role == checks.RoleWorker || p.Role == checks.RoleMain && f.MainServes
		if part || p.Role == checks.RoleMain {
			p.SpinFor = l.spinning()
		}
		if !part {
			return
		}
		if p.State == checks.ProcStopped && p.Role == checks.RoleWorker && s.At-stopped.since >= frozenApart {
			f.Frozen++
			f.FrozenFor = max(f.FrozenFor, p.StoppedFor)
		}
		if p.SpinFor >= spinSuspect {
			f.Spinning++
			f.SpinningFor = max(f.SpinningFor, p.SpinFor)
		}
		if p.FDsExhausted && p.State == checks.ProcAlive {
			f.FDsExhausted++
		}
	}
	for i := range f.Workers {
		m := t.members[s.Workers[i].ID]
		count(&f.Workers[i], m.still, &m.load)
	}
	count(&f.Main, t.still, &t.load)
}
