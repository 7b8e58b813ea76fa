package host

import (
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// readEvery is the least time between two close looks at a process: a target
	// that is swept fast is not read closely each time. Chosen: a second's cadence
	// less its jitter.
	readEvery = 900 * time.Millisecond
	// hotShare of the time is what a thread runs or waits at least to be read.
	hotShare = 0.02
	// idleShare is what a process may use without being read. Chosen: a quarter of
	// hotShare. One that waits for a CPU is found by its state.
	idleShare = 0.005
	// spinShare is from which share on the sockets are read too: well below the
	// 0.85 of JUDGING section 3, P6, so that a spinner is never left out.
	spinShare = 0.5
	// threadsPerSecond bounds the threads of one process that are read each second:
	// one with more is read less often. Chosen: about 1 ms.
	threadsPerSecond = 256
	// linksMost bounds the descriptors of one process that its hash of sockets
	// covers, the lowest ones; how many there are in all is in it too. New
	// connections take the lowest free numbers.
	linksMost = 1024
	// nearLimit is how near the number of descriptors must be to the limit for
	// their table to be read (reference measurements, rule 11).
	nearLimit = 2
)

// reading is what the close looks remember of a process.
type reading struct {
	clock   time.Duration // its CPU clock at the last touch
	clocked bool          // clock could be read
	// calm: no thread of it has run since it was read, so that nothing it says of
	// itself can have changed.
	calm     bool
	verified time.Duration // when its stat was last read in full

	utime, stime time.Duration // as of verified
	threads      int
	running      bool // it ran, or waited for a CPU

	at        time.Duration // of the last close look
	atClock   time.Duration // the CPU clock then
	byTID     map[int]Thread
	threadsAt time.Duration // when its threads were last gone through
	limit     int           // of descriptors, from the file, read at limitAt
	limitAt   time.Duration
	tableAt   time.Duration // when the descriptors were last gone through for the lowest free one
	titleAt   time.Duration
	titleDue  bool
	tracerOf  ID // that Tracer was read for
}

// signals takes close looks at the processes of a target that are due for one.
func (o *Observer) signals(t *target, now time.Duration) {
	t.spins = false
	if t.main != nil && t.status == MainAlive {
		o.signalsOf(t.main, now)
		t.spins = t.main.view.Sockets != 0
	}
	for _, p := range t.kids {
		o.signalsOf(p, now)
		t.spins = t.spins || p.view.Sockets != 0
	}
}

func (o *Observer) signalsOf(p *proc, now time.Duration) {
	v, r := &p.view, &p.reading
	if v.State != checks.ProcStopped {
		v.StoppedSince = 0
	} else if v.StoppedSince == 0 {
		v.StoppedSince = now
	}
	o.tracer(p)
	switch {
	case p.dead:
		return
	case r.calm && r.at != 0 && r.clock == r.atClock && len(v.Hot) == 0:
		v.CPUAt = now // read again, it would say the same
		return
	}
	if r.at == 0 || now-r.at >= readEvery && o.worthIt(p, now) {
		o.lookClosely(p, now)
	}
	switch {
	case p != p.target.main && v.Listens:
		v.Title, r.titleDue = "", false
	case r.titleAt == 0:
		v.Title, r.titleAt = o.kernel.fs.title(v.PID), now
	case !r.calm && (p != p.target.main || now-r.titleAt >= verifyEvery):
		r.titleDue = true
	}
}

// worthIt reports whether a close look can bring anything: most processes wake
// now and then, do next to nothing and sleep again.
func (o *Observer) worthIt(p *proc, now time.Duration) bool {
	r := &p.reading
	since := now - p.view.CPUAt
	return !r.clocked || r.running || len(p.view.Hot) > 0 || p.view.State != checks.ProcAlive || since >= verifyEvery ||
		float64(r.clock-r.atClock) > idleShare*float64(since)
}

// tracer names who traces a process, once.
func (o *Observer) tracer(p *proc) {
	v := &p.view
	if !v.Traced {
		v.Tracer, v.TracerComm, p.reading.tracerOf = 0, "", ID{}
		return
	}
	if p.reading.tracerOf == v.ID {
		return
	}
	b, err := o.kernel.fs.read(o.kernel.fs.join(v.PID, "/status"))
	if err != nil {
		return
	}
	s, err := parseStatus(b)
	if err != nil {
		o.stats.errors.Add(1)
		return
	}
	p.reading.tracerOf, v.Tracer, v.TracerComm = v.ID, s.tracer, ""
	if by, err := o.kernel.fs.stat(s.tracer); s.tracer > 0 && err == nil {
		v.TracerComm = by.comm
	}
}

// lookClosely reads what a process has done since the last look.
func (o *Observer) lookClosely(p *proc, now time.Duration) {
	v, r := &p.view, &p.reading
	s, err := o.kernel.fs.sched(v.PID)
	if err != nil {
		if !gone(err) { // gone: the next sweep says so
			o.stats.errors.Add(1)
		}
		return
	}
	before, beforeAt := sched{v.Ran, v.Waited}, v.CPUAt
	used := max(s.ran-before.ran, r.utime+r.stime-v.UTime-v.STime)
	if r.clocked && r.atClock != 0 {
		used = max(used, r.clock-r.atClock)
	}
	v.UTime, v.STime, v.Threads = r.utime, r.stime, r.threads
	v.Ran, v.Waited, v.CPUAt = s.ran, s.waited, now
	r.at, r.atClock = now, r.clock
	hot := beforeAt == 0 || len(v.Hot) > 0 || o.isHot(used, s.waited-before.waited, r.threads, now-beforeAt)
	switch {
	case !hot:
		v.Hot, v.Sockets = nil, 0
	case now-r.threadsAt >= time.Duration(r.threads/threadsPerSecond)*time.Second:
		o.threads(p, s, beforeAt, now)
	}
	o.descriptors(p, now)
}

// isHot decides whether threads are worth reading. Of a process with several, only
// the main thread's wait is known; while CPUs are short a tenth of the share
// that it ran counts as hot, for the rest of it may be waiting.
func (o *Observer) isHot(used, waited time.Duration, threads int, elapsed time.Duration) bool {
	share := hotShare
	if host := o.host.Load(); threads > 1 && (host == nil || host.CPUPressure < 0 || host.CPUPressure > 0.1) {
		share /= 10
	}
	return float64(used+waited) > share*float64(elapsed)
}

// threads reads each thread of a process and keeps those that are hot. Unknown
// ones count as hot if they run, and hot ones stay it while they wait for a CPU:
// the kernel adds a wait only when it is over.
func (o *Observer) threads(p *proc, main sched, beforeAt, now time.Duration) {
	fs, v, r := o.kernel.fs, &p.view, &p.reading
	if r.byTID == nil {
		r.byTID = map[int]Thread{}
	}
	fs.scratch = fs.scratch[:0]
	if r.threads == 1 {
		fs.scratch = append(fs.scratch, v.PID)
	} else if err := fs.numbers(fs.join(v.PID, "/task"), func(n int) { fs.scratch = append(fs.scratch, n) }); err != nil {
		return // it ended: the next sweep says so
	}
	was := v.Hot
	r.threadsAt, v.Hot, v.Sockets = now, nil, 0
	spins := false
	for _, tid := range fs.scratch {
		s := main
		if tid != v.PID {
			var err error
			if s, err = fs.threadSched(v.PID, tid); err != nil {
				continue // a thread may end at any time
			}
		}
		th, known := r.byTID[tid]
		share, voluntary := 0.0, th.Voluntary
		if elapsed := now - max(th.At, beforeAt); known && elapsed > 0 {
			share = float64(s.ran-th.Ran+s.waited-th.Waited) / float64(elapsed)
		}
		th.TID, th.Ran, th.Waited, th.At = tid, s.ran, s.waited, now
		doubtful := !known || slices.ContainsFunc(was, func(h Thread) bool { return h.TID == tid })
		if share > hotShare || doubtful {
			if running, err := fs.threadDetail(v.PID, &th); err == nil && (share > hotShare || running) {
				v.Hot = append(v.Hot, th)
				spins = spins || running && doubtful || share >= spinShare && th.Voluntary == voluntary
			}
		}
		r.byTID[tid] = th
	}
	for tid, th := range r.byTID {
		if th.At != now {
			delete(r.byTID, tid)
		}
	}
	if spins {
		v.Sockets = fs.socketSet(v.PID)
	}
}

// descriptors tells how near a process is to its limit of descriptors. Their
// number is cheap and no less than the lowest free one; the table is read only
// when the number does not settle it.
func (o *Observer) descriptors(p *proc, now time.Duration) {
	fs, v, r := o.kernel.fs, &p.view, &p.reading
	limit, ok := 0, false
	if o.kernel.pids {
		limit, ok = fdLimit(v.PID)
	}
	switch {
	case ok:
	case r.limit == 0 || now-r.limitAt >= verifyEvery:
		if b, err := fs.read(fs.join(v.PID, "/limits")); err == nil {
			r.limit, _ = parseFDLimit(b)
		}
		r.limitAt = now
		limit = r.limit
	default:
		limit = r.limit
	}
	n, counted := fs.countFDs(v.PID)
	switch {
	case limit == 0:
		v.NextFD, v.FDLimit = 0, 0
	case counted && n < limit-nearLimit:
		v.NextFD, v.FDLimit = n, limit
	case counted || now-r.tableAt >= verifyEvery: // Linux before 6.2 does not count: less often
		r.tableAt = now
		v.NextFD, v.FDLimit = 0, 0
		if next, err := fs.lowestFree(v.PID); err == nil {
			v.NextFD, v.FDLimit = next, limit
		}
	}
}

// fdLimit asks for the soft limit of descriptors (prlimit(2)); without
// CAP_SYS_RESOURCE only of processes of our own user.
func fdLimit(pid int) (int, bool) {
	var r unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &r); err != nil {
		return 0, false
	}
	return int(min(r.Cur, math.MaxInt32)), true
}
