package workercheck

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

const (
	// spinSuspect is when a thread that runs without a break counts as spinning
	// (JUDGING section 3, P6: 15 s suspected, 30 s decided).
	spinSuspect = 15 * time.Second
	// spinShare is how much of the time it must have run or waited for a CPU: 82
	// to 115 % were measured of spinners on a host without a free CPU (inhost.md,
	// F3).
	spinShare = 0.85
	// spinKernel is how much of its CPU time may be the kernel's (inhost.md, rule
	// 8: user time at least 98 %): interrupts are charged to whoever runs. Measured
	// 2026-11-30: a loop in Python, 6 ticks of 1416 in 15 s (0.4 %).
	spinKernel = 0.02
	// readingGap is the least time between two readings that are compared; chosen:
	// at 25 ms a tick of 10 ms is noise.
	readingGap = 400 * time.Millisecond
	// stall is by how much a reading may come late. The kernel's counters tell of
	// the gap as of the rest, a clock that jumped shows as a thread that did not
	// run; only the sockets are sampled, and those of a busy worker differ in every
	// sample. Chosen: two default intervals of looks, for nobody looks each second
	// on a host of which nothing is suspected.
	stall = 11 * time.Second
)

// load follows the CPU use of one process from reading to reading. The zero
// value is ready.
type load struct {
	at      time.Duration // of the last close reading taken
	since   time.Duration // of the last reading of the CPU time used
	used    time.Duration
	cpu     float64 // share of one core; only if known
	known   bool
	threads map[int]window // by TID
}

// window is the time over which one thread ran without a break.
type window struct {
	first, last host.Thread
	sockets     uint64 // of its process, all the while
}

// take takes the readings in a snapshot of the process that was swept at at, if
// they are new.
func (l *load) take(p *host.Process, at time.Duration) {
	l.takeCPU(p, at)
	if p.CPUAt == 0 || l.at != 0 && p.CPUAt-l.at < readingGap {
		return
	}
	stalled := l.at != 0 && p.CPUAt-l.at > host.SweepEvery+stall
	before := l.threads
	l.at, l.threads = p.CPUAt, nil
	for _, t := range p.Hot {
		w, ok := before[t.TID]
		if !ok || stalled || w.broken(&t, p.Sockets) {
			w = window{first: t, sockets: p.Sockets}
		}
		w.last = t
		if l.threads == nil {
			l.threads = map[int]window{}
		}
		l.threads[t.TID] = w
	}
}

// takeCPU follows the CPU time used: by the process's own clock, exactly, or by
// ticks when it was read closely.
func (l *load) takeCPU(p *host.Process, at time.Duration) {
	used := p.Clock
	if used == 0 {
		used, at = p.UTime+p.STime, p.CPUAt
	}
	if at == 0 || l.since != 0 && at-l.since < readingGap {
		return
	}
	if l.since != 0 && used >= l.used {
		l.cpu, l.known = float64(used-l.used)/float64(at-l.since), true
	}
	l.since, l.used = at, used
}

// broken reports whether the thread did anything since the window began that a
// spinning one does not do: sleep, work in the kernel, open or close a socket. A
// busy worker that is well never sleeps either, because its queue is never empty;
// it is told apart by the other two (inhost.md, F4).
func (w *window) broken(t *host.Thread, sockets uint64) bool {
	wall, ran := t.At-w.first.At, t.Ran+t.Waited-w.first.Ran-w.first.Waited
	step, stepRan := t.At-w.last.At, t.Ran+t.Waited-w.last.Ran-w.last.Waited
	user, kernel := t.UTime-w.first.UTime, t.STime-w.first.STime
	switch {
	case step <= 0:
		return false // not a new reading
	case stepRan < 0 || user < 0 || kernel < 0:
		return true // another thread of the same number
	case sockets == 0 || sockets != w.sockets:
		return true
	case t.Voluntary != w.first.Voluntary:
		return true
	case kernel > Tick && float64(kernel) > spinKernel*float64(user+kernel):
		return true
	}
	// A wait is told when it ends, so that one step may show less than it took.
	return float64(ran) < spinShare*float64(wall) || stepRan < step/2
}

// spinning is how long the thread that has run longest without a break has.
func (l *load) spinning() time.Duration {
	var longest time.Duration
	for _, w := range l.threads {
		longest = max(longest, w.last.At-w.first.At)
	}
	return longest
}

// share is the CPU used between the last two readings; -1 if it is not known.
func (l *load) share() float64 {
	if !l.known {
		return -1
	}
	return l.cpu
}
