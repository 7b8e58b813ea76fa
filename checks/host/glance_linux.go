package host

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// glanceEvery is how often workers are glanced at between sweeps, with a dump;
	// chosen: with it four frozen workers are met after 0.1 s in the middle, not
	// 0.5 s, and it costs a quarter of a microsecond for each process at rest.
	glanceEvery = 2 * DumpEvery
	// glancesMost bounds the processes whose state is read in one glance, over all
	// targets in turn; chosen: 0.3 ms.
	glancesMost = 64
	// running is the share of the time from which a process is known to run, and so
	// not to be stopped, without being read.
	running = 0.05
)

// glance looks for workers that were stopped since the last sweep, and has their
// target swept now. A process at rest needs a moment of CPU to be stopped, and one
// that ran does not run any more: only those that did either are read.
func (o *Observer) glance(now time.Duration) {
	if o.kernel.cpuClock == nil || now-o.glancedAt < glanceEvery {
		return
	}
	elapsed := now - o.glancedAt
	o.glancedAt = now
	left := glancesMost
	for i := range o.targets {
		t := o.targets[(o.glanceFirst+i)%len(o.targets)]
		if t.fast || t.status != MainAlive || t.next <= now {
			continue // swept soon anyway
		}
		for _, p := range t.kids {
			if p.dead || p.view.State != checks.ProcAlive || p.pidfd < 0 || !p.mayHaveStopped(o.kernel.cpuClock, elapsed) {
				continue
			}
			if left--; left < 0 {
				o.glanceFirst = (o.glanceFirst + i + 1) % len(o.targets) // another's turn
				return
			}
			if s, err := o.kernel.fs.stat(p.view.PID); err == nil && s.procState() == checks.ProcStopped {
				t.hurry(now)
				break
			}
		}
	}
}

// mayHaveStopped reports whether a process ran a little, or stopped to run, since
// the last glance.
func (p *proc) mayHaveStopped(cpuClock func(pid int) (time.Duration, bool), elapsed time.Duration) bool {
	clock, ok := cpuClock(p.view.PID)
	if !ok {
		return false
	}
	ran, first := clock-p.glanced, p.glanced == 0
	p.glanced = clock
	ranMuch := float64(ran) >= running*float64(elapsed)
	stopped := !first && (ran > 0 && !ranMuch || ran == 0 && p.ranMuch)
	p.ranMuch = ranMuch
	return stopped
}
