package host

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// eventful is how long after a birth or death descriptors are verified in each
	// sweep: a reload closes those of the old workers. Chosen: JUDGING's 10 s for
	// whatever changes hands. fdsEvery is how often otherwise; chosen: a listener
	// that no process holds any more is seen by the dump.
	eventful = 10 * time.Second
	fdsEvery = 3 * time.Second
	// verifyEvery is how long a process may be taken for what it was because it has
	// used no CPU. Chosen: it bounds the harm of a clock that does not see a short
	// run (a kernel whose scheduler counts in ticks).
	verifyEvery = 5 * time.Second
)

// cpuClock is the CPU time of all threads of a process (clock_getcpuclockid(3)),
// one call for what would take two files: it stands still only if none of its
// threads has run, and a process must run to fork, wait, exec, bind, accept,
// stop or exit.
func cpuClock(pid int) (time.Duration, bool) {
	const schedClock = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	id := int32(^pid)<<3 | schedClock
	var ts unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}

// touchAll touches each process of a target.
func (o *Observer) touchAll(t *target, now time.Duration) {
	if t.main != nil {
		o.touch(t.main, now)
	}
	for _, p := range t.kids {
		o.touch(p, now)
	}
}

// touch tells whether a process ran since it was read. It must come before
// anything else is read of it in a sweep.
func (o *Observer) touch(p *proc, now time.Duration) {
	r := &p.reading
	r.calm = false
	if o.kernel.cpuClock == nil || p.dead || p.diedAt != 0 || p.pidfd < 0 {
		r.clocked, r.verified = false, 0
		return
	}
	clock, ok := o.kernel.cpuClock(p.view.PID)
	r.calm = ok && r.clocked && clock == r.clock && r.verified-p.view.Born >= settled && now-r.verified < verifyEvery
	r.clock, r.clocked = clock, ok
	p.view.Clock = clock
	if !r.calm {
		r.verified = 0 // until its stat was read
	}
}

// took takes what the close looks need of a stat.
func (r *reading) took(s *stat, now time.Duration) {
	r.utime, r.stime, r.threads, r.running, r.verified = s.utime, s.stime, s.threads, s.state == 'R', now
}

// mayBeOther reports whether a process may have become another program: an
// execve(2) moves the code, but without address space randomisation.
func (p *proc) mayBeOther(s *stat, now time.Duration) bool {
	seen := s.startCode > 1 && s.startCode == p.code && s.comm == p.view.Comm && p.pidfd >= 0
	p.code = s.startCode
	if p.target.fast {
		return s.comm != p.view.Comm
	}
	return !seen || now-p.exeAt >= verifyEvery
}

// rest brings a calm process up to date without reading it.
func (t *target) rest(p *proc, now time.Duration) {
	p.listed = t.sweeps
	p.view.Age = max(0, now-p.view.Born)
}

// lookOwners has the owners of the sockets found out again if anything that
// decides them may have changed: a process that has not run has the descriptors
// it had.
func (o *Observer) lookOwners(t *target, now time.Duration) {
	if !o.ownersDue(t, now) {
		return
	}
	t.fdTrouble = ""
	o.owners(t, now)
	t.ownersAt, t.ownersVersion, t.ownersSeq, t.ownersKids = now, t.version, t.seq, len(t.kids)
}

func (o *Observer) ownersDue(t *target, now time.Duration) bool {
	switch {
	case o.kernel.cpuClock == nil, t.fast, t.status != MainAlive, t.fdTrouble != "",
		now-t.ownersAt >= rescanFDs, t.ownersVersion != t.version, t.ownersSeq != t.seq, t.ownersKids != len(t.kids):
		return true
	}
	for _, l := range t.listeners {
		if !l.Listening || len(l.lost) > 0 {
			return true
		}
	}
	if now-t.seqAt >= eventful && now-t.fdsAt < fdsEvery {
		return false
	}
	t.fdsAt = now
	if o.fdsMoved(t.main) {
		return true
	}
	for _, p := range t.kids {
		if o.fdsMoved(p) {
			return true
		}
	}
	return false
}

// fdsMoved reports whether a process's descriptors may not be what they were.
func (o *Observer) fdsMoved(p *proc) bool {
	switch {
	case p.dead || p.reading.calm:
		return false
	case p.fdsAt == 0 || p.fdErr != nil || len(p.fds) == 0 && p.view.Age < youngFDs:
		return true
	}
	for _, h := range p.fds {
		if inode, ok := o.kernel.fs.fdInode(p.view.PID, h.fd); !ok || inode != h.inode {
			return true
		}
	}
	return false
}
