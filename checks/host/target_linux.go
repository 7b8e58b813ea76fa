package host

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

// target is the state of one watched instance. Owned by the run goroutine, but
// for published.
type target struct {
	cfg       Target
	published atomic.Pointer[Snapshot]

	main      *proc // the last main known; nil if none was
	status    MainStatus
	why       string
	lastAlive time.Duration
	pidFile   fileID // the pid file's identity when main was taken from it

	kids      map[ID]*proc
	reaped    uint64 // main's counter of reaped children at the last sweep
	counted   bool   // reaped was read, consistently, under this main
	trouble   Trouble
	fdTrouble string

	listeners []*listener
	// inodes are those to look for in descriptor tables: the LISTEN sockets of
	// the declared listeners, now and last; all of the host's, if none is
	// declared. version rises when they change.
	inodes      map[uint64]bool
	version     uint64
	scan        backoff
	scanTrouble Trouble // what kept the last walk for main from an answer

	events    []Event
	seq       uint64
	sweeps    uint64
	dumps     uint64
	lastSweep time.Duration
	lastDump  time.Duration
	lastExit  time.Duration

	// Cadence.
	next        time.Duration
	fast        bool
	fastSince   time.Duration
	spentAt     time.Duration // when the fast time was used up; 0 if it was not
	spentOn     suspicion     // grounds that have had their fast time
	changed     bool          // since the last signal
	stale       bool          // since the last publish
	kidsScratch []int
}

// proc is one process of a target.
type proc struct {
	target    *target
	view      Process
	pidfd     int // -1 if none
	token     uint32
	diedAt    time.Duration // told by the pidfd; 0 if it was not
	dead      bool          // its death was recorded; a zombie stays listed
	visible   bool          // we may read its hidden fields (exit code)
	listed    uint64        // the sweep in which it was last seen
	fds       []heldFD
	fdsAt     time.Duration // of the last full look at its descriptors
	fdVersion uint64
	fdErr     error
}

type listener struct {
	Listener
	inodes []uint64 // LISTEN now
	last   []uint64 // the last that were
	absent time.Duration
	// orphan is since when an inode had no owner within the target.
	orphan  time.Duration
	foreign []Owner
	scan    backoff
}

// suspicion is the set of grounds to look closely (JUDGING section 3).
type suspicion uint8

const (
	suspectExit suspicion = 1 << iota
	suspectNoWorker
	suspectStopped
	suspectListener
	suspectMain
)

func (t *target) suspicion(now time.Duration) (s suspicion) {
	if t.lastExit != 0 && now-t.lastExit < exitLingers {
		s |= suspectExit
	}
	living, ever := 0, false
	for _, p := range t.kids {
		switch p.view.State {
		case checks.ProcStopped, checks.ProcZombie:
			s |= suspectStopped
		}
		if p.view.State == checks.ProcAlive {
			living++
		}
		ever = true
	}
	if t.status == MainAlive && living == 0 && (ever || t.hadWorkers()) {
		s |= suspectNoWorker
	}
	if t.status == MainGone {
		s |= suspectMain
	}
	if t.status == MainAlive && t.main.view.State == checks.ProcStopped {
		s |= suspectStopped
	}
	for _, l := range t.listeners {
		if l.EverListening && !l.Listening {
			s |= suspectListener
		}
	}
	return s
}

// hadWorkers reports whether main ever had one, as far as the kept events tell.
func (t *target) hadWorkers() bool {
	for i := range t.events {
		e := &t.events[i]
		if e.Main == t.main.view.ID && (e.Kind == Birth || e.Kind == Unseen) {
			return true
		}
	}
	return false
}

// pace sets the time of the next sweep.
func (t *target) pace(now time.Duration) {
	s := t.suspicion(now)
	t.fast = false
	switch {
	case s == 0:
		t.fastSince, t.spentAt, t.spentOn = 0, 0, 0
	case t.spentAt != 0 && s&^t.spentOn == 0 && now-t.spentAt < RearmAfter:
	case t.spentAt != 0 || t.fastSince == 0:
		t.fastSince, t.spentAt, t.fast = now, 0, true
	case now-t.fastSince >= FastFor:
		t.spentAt, t.spentOn = now, t.spentOn|s
	default:
		t.fast = true
	}
	t.next = now + SweepEvery
	if t.fast {
		t.next = now + FastEvery
	}
}

// hurry brings the next sweep forward because something happened.
func (t *target) hurry(now time.Duration) {
	switch {
	case t.fast:
		t.next = min(t.next, max(now, t.lastSweep+wakeGap))
	case t.spentAt == 0 || t.suspicion(now)&^t.spentOn != 0:
		t.next = min(t.next, now)
	}
}

// dumped takes a dump of all LISTEN sockets.
func (t *target) dumped(sockets []socket, err error, at time.Duration) {
	t.stale = true
	if err != nil {
		return
	}
	t.dumps++
	t.lastDump = at
	var scratch [8]socket
	moved := false
	for _, l := range t.listeners {
		found := matching(sockets, l.Addr, scratch[:0])
		was := l.Listening
		moved = l.seen(found, at) || moved
		if was != l.Listening {
			t.changed = true
		}
	}
	if len(t.listeners) == 0 {
		moved = t.loose(sockets)
	}
	if moved {
		t.version++
		t.inodes = t.interest()
		if t.status != MainUnknown {
			t.hurry(at)
		}
	}
}

// seen takes the sockets that satisfy l in one dump and reports whether they
// are others than before.
func (l *listener) seen(found []socket, at time.Duration) (moved bool) {
	l.Sockets, l.Queue, l.Backlog = len(found), 0, 0
	var inodes []uint64
	for _, s := range found {
		inodes = append(inodes, s.inode)
		if s.queue >= l.Queue {
			l.Queue, l.Backlog = s.queue, s.backlog
		}
	}
	slices.Sort(inodes)
	moved = !slices.Equal(inodes, l.inodes)
	l.inodes = inodes
	l.Listening = len(found) > 0
	if l.Listening {
		l.last, l.Held, l.EverListening = inodes, false, true
		l.AbsentDumps, l.AbsentFor, l.absent = 0, 0, 0
		return moved
	}
	l.AbsentDumps++
	if l.AbsentDumps == 1 {
		l.absent = at
	}
	l.AbsentFor = at - l.absent
	return moved
}

// loose makes every LISTEN inode of the host interesting.
func (t *target) loose(sockets []socket) (moved bool) {
	fresh := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		fresh[s.inode] = true
		moved = moved || !t.inodes[s.inode]
	}
	moved = moved || len(fresh) != len(t.inodes)
	if moved {
		t.inodes = fresh
	}
	return moved
}

// interest is the set of inodes to look for in descriptor tables.
func (t *target) interest() map[uint64]bool {
	if len(t.listeners) == 0 {
		return t.inodes
	}
	set := map[uint64]bool{}
	for _, l := range t.listeners {
		for _, i := range l.inodes {
			set[i] = true
		}
		for _, i := range l.last {
			set[i] = true
		}
	}
	return set
}

// record appends an event.
func (t *target) record(e Event) {
	t.seq++
	e.Seq = t.seq
	if t.main != nil {
		e.Main = t.main.view.ID
	}
	// Snapshots share the array: what was appended is never written again, and
	// a full array is left to them.
	if len(t.events) == cap(t.events) {
		kept := t.events[max(0, len(t.events)-EventsKept+1):]
		t.events = append(make([]Event, 0, 4*EventsKept), kept...)
	}
	t.events = append(t.events, e)
	t.changed = true
}

// procs are main and the workers known.
func (t *target) procs() []*proc {
	var out []*proc
	if t.main != nil {
		out = append(out, t.main)
	}
	for _, p := range t.kids {
		out = append(out, p)
	}
	return out
}

// publish makes a snapshot.
func (t *target) publish(dumpErr error) {
	t.stale = false
	if t.sweeps == 0 {
		return
	}
	s := &Snapshot{
		Target: t.cfg.Name, Sweep: t.sweeps, Dump: t.dumps, At: t.lastSweep, DumpAt: t.lastDump,
		Main:    Main{Status: t.status, Why: t.why, LastAlive: t.lastAlive, Reaped: t.reaped > 0},
		Trouble: t.trouble, FDsUnknown: t.fdTrouble,
		Events: slices.Clip(t.events[max(0, len(t.events)-EventsKept):]),
	}
	if t.main != nil {
		s.Main.Process = t.main.view
		if t.status == MainGone {
			s.Main.Process.State, s.Main.Process.Listens = checks.ProcGone, false
		}
	}
	if dumpErr != nil {
		s.DumpTrouble = Trouble{checks.ReasonOwnLimit, dumpErr.Error()}
		if denied(dumpErr) {
			s.DumpTrouble.Reason = checks.ReasonNoPermission
		}
	}
	for _, p := range t.kids {
		s.Workers = append(s.Workers, p.view)
	}
	slices.SortFunc(s.Workers, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
	})
	for _, l := range t.listeners {
		s.Listeners = append(s.Listeners, l.Listener)
	}
	t.published.Store(s)
}

// forget lets go of a process's pidfd.
func (o *Observer) forget(p *proc) {
	if p.token != 0 {
		delete(o.tokens, p.token)
		p.token = 0
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}
