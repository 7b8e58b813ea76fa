package host

import (
	"os"
	"runtime"
	"time"
)

// lateKept is for how many readings the worst lateness is kept: at least 10 s
// (HostState.Late) of slowEvery.
const lateKept = 12

// pressure measures what is known of the whole machine, and how late we are
// ourselves: the latter needs no kernel feature. Owned by the run goroutine.
type pressure struct {
	fs   *procfs
	cpus int
	// worst is the longest lateness in each of the last times, the present one at
	// turn.
	worst [lateKept]time.Duration
	turn  int
	// waited is how long each of our threads had waited for a CPU, by number.
	waited map[int]Thread
}

func newPressure(fs *procfs) *pressure {
	p := &pressure{fs: fs, cpus: runtime.NumCPU(), waited: map[int]Thread{}}
	// Ours may be fewer than the machine's: an affinity, a container.
	if b, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n, ok := parseCPUList(b); ok {
			p.cpus = n
		}
	}
	return p
}

// woken notes that the loop woke later than it asked to.
func (p *pressure) woken(late time.Duration) {
	p.worst[p.turn] = max(p.worst[p.turn], late)
}

// read reads the machine's state.
func (p *pressure) read(now time.Duration) HostState {
	p.ownWaits(now)
	h := HostState{CPUPressure: -1, CPUs: p.cpus}
	for _, late := range p.worst {
		h.Late = max(h.Late, late)
	}
	p.turn = (p.turn + 1) % lateKept
	p.worst[p.turn] = 0
	if b, err := p.fs.read(p.fs.root + "/pressure/cpu"); err == nil {
		if some, ok := parsePressure(b); ok {
			h.CPUPressure = some
		}
	}
	return h
}

// ownWaits notes how long one of our own threads was ready and given no CPU
// since the last time. Go moves goroutines between threads, so all are read.
func (p *pressure) ownWaits(now time.Duration) {
	fs, self := p.fs, os.Getpid()
	fs.scratch = fs.scratch[:0]
	if err := fs.numbers(fs.join(self, "/task"), func(n int) { fs.scratch = append(fs.scratch, n) }); err != nil {
		return // a kernel without it still has the loop's own lateness
	}
	for _, tid := range fs.scratch {
		s, err := fs.threadSched(self, tid)
		if err != nil {
			continue
		}
		if was, known := p.waited[tid]; known {
			p.woken(s.waited - was.Waited)
		}
		p.waited[tid] = Thread{Waited: s.waited, At: now}
	}
	for tid, th := range p.waited {
		if th.At != now {
			delete(p.waited, tid)
		}
	}
}
