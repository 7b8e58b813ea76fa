package host

import (
	"cmp"
	"maps"
	"regexp"
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
	inside    atomic.Uint64 // the network namespace's inode, 0 for ours
	// freshDumps and freshAt are Dump and DumpAt when a dump brought nothing new.
	freshDumps atomic.Uint64
	freshAt    atomic.Int64 // nanoseconds on the boot clock

	main      *proc // the last main known; nil if none was
	status    MainStatus
	why       string
	lastAlive time.Duration
	pidFile   fileID // the pid file's identity when main was taken from it
	unnamed   bool   // the pid file was gone, or empty, at the last look

	// pidFileSame: as of pidFileAt the file was the one that pidFile says.
	pidFileSame bool
	pidFileAt   time.Duration

	kids      map[ID]*proc
	briefs    map[int]*brief // by pid
	reaped    uint64         // main's counter of reaped children at the last sweep
	counted   bool           // reaped was read, consistently, under this main
	trouble   Trouble
	fdTrouble string

	// What tells main's kin from strangers: what it runs, and its unit or
	// container; both empty if they are not known. located is when they were read.
	program, unit string
	located       time.Duration
	wakeAt        time.Duration // something wants a sweep then; 0 if nothing does
	startStack    uint64        // where main's stack begins: forked children have theirs there too
	heirOf        ID            // main took over from this one, its parent; zero if it did not
	inheritAt     time.Duration

	gaveUp bool // systemd starts main no more

	// The search for main by what it runs.
	cmdline, workerName *regexp.Regexp // nil if not declared
	searchAt            time.Duration
	passed              map[int]passed // by pid
	named               map[ID]named   // of workers by name

	// Main's control group: its path, and the file that counts processes killed
	// for memory, of the groups that oomOf names. oomSeen is its last count,
	// oomFresh that it is another's than before.
	cgroup                         string
	oom                            groupFile
	oomOf                          string
	oomSeen, oomKills              uint64
	oomKnown, oomFresh, oomCounted bool

	// A configuration file newer than who runs with it, and when it was written;
	// configAt is when that was looked at, after the event configSeq.
	staleFile            string
	staleSince, configAt time.Duration
	configSeq            uint64

	where   where
	dumpErr error // of the last dump of that namespace

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
	began     time.Duration // the sweep that runs, or the last
	lastDump  time.Duration
	lastExit  time.Duration

	// Cadence.
	next        time.Duration
	fast        bool
	fastSince   time.Duration
	spentAt     time.Duration // when the fast time was used up; 0 if it was not
	spentOn     suspicion     // grounds that have had their fast time
	changed     bool          // since the last signal
	spins       bool          // a thread may be spinning: each sweep is news
	stale       bool          // since the last publish
	kidsScratch []int
	statScratch []stat
	byPID       map[int]*proc // scratch: the calm workers

	// turn is by how much earlier than a second its second sweep comes, so that
	// those of all targets do not come at once; turned says that it came. rides:
	// the next sweep comes with the dump nearest to it.
	turn   time.Duration
	turned bool
	rides  bool
	// What the last look at owners was based on.
	ownersAt      time.Duration
	ownersVersion uint64
	ownersSeq     uint64
	ownersKids    int
	fdsAt         time.Duration // when the descriptors were verified last
	seqAt         time.Duration // of the last event
}

// proc is one process of a target.
type proc struct {
	target    *target
	view      Process
	pidfd     int // -1 if none
	token     uint32
	diedAt    time.Duration // told by the pidfd; 0 if it was not
	dead      bool          // its death was recorded; a zombie stays listed
	told      told          // its end, by the process connector
	forked    bool          // of a lone child: main forked it and did not start a program
	group     *group        // nil if it is not known
	groupAt   time.Duration // when that was read
	visible   bool          // we may read its hidden fields (exit code)
	listed    uint64        // the sweep in which it was last seen
	glanced   time.Duration // the CPU clock at the last glance; 0 before the first
	ranMuch   bool          // between the last two glances
	fds       []heldFD
	fdsAt     time.Duration // of the last full look at its descriptors
	fdVersion uint64
	fdErr     error
	reading   reading
	keeps     bool          // its files stay open
	exeAt     time.Duration // when its executable was read last
	code      uint64        // where its code began then; 0 if that may not be seen
}

type listener struct {
	Listener
	inodes []uint64 // LISTEN now
	last   []uint64 // the last that were
	absent time.Duration
	// held are those of inodes and last that somebody of the target was seen to
	// hold, lost those of inodes that nobody does.
	held     map[uint64]bool
	lost     map[uint64]*lost
	lookedAt time.Duration // of the last look that ForeignLook counts
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
	t.next, t.rides = now+SweepEvery, true
	switch {
	case t.fast:
		t.next, t.rides, t.turned = now+FastEvery, false, false
	case !t.turned:
		t.next, t.turned = t.next-t.turn, true
	}
	if t.wakeAt != 0 {
		t.next, t.rides, t.wakeAt = min(t.next, max(now, t.wakeAt)), false, 0
	}
}

// hurry brings the next sweep forward because something happened.
func (t *target) hurry(now time.Duration) {
	switch {
	case t.fast:
		t.next = min(t.next, max(now, t.lastSweep+wakeGap))
	case t.spentAt == 0 || t.suspicion(now)&^t.spentOn != 0:
		t.next, t.rides = min(t.next, now), false
	}
}

// dumped takes a dump of all LISTEN sockets.
func (t *target) dumped(sockets []socket, err error, at time.Duration) {
	if err != nil {
		return
	}
	t.dumps++
	t.lastDump = at
	var scratch [8]socket
	moved := false
	for _, l := range t.listeners {
		found := l.matching(sockets, scratch[:0])
		was, group := l.Listening, l.Group
		moved = l.seen(found, at) || moved
		t.stale = t.stale || !l.Listening || !sameSlice(group, l.Group)
		if was != l.Listening {
			t.changed = true
		}
	}
	if len(t.listeners) == 0 {
		moved = t.loose(sockets)
	}
	if moved {
		t.stale = true
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
	slices.SortFunc(found, func(a, b socket) int { return cmp.Compare(a.inode, b.inode) })
	l.Sockets, l.Queue, l.Backlog = len(found), 0, 0
	moved, same := len(found) != len(l.inodes), len(found) == len(l.Group)
	for i, s := range found {
		if s.queue >= l.Queue {
			l.Queue, l.Backlog = s.queue, s.backlog
		}
		moved = moved || s.inode != l.inodes[i]
		same = same && l.Group[i] == Socket{s.inode, s.queue, s.backlog, l.Group[i].Foreign}
	}
	if moved {
		l.inodes = nil
		for _, s := range found {
			l.inodes = append(l.inodes, s.inode)
		}
	}
	if !same { // a new one: snapshots share the old
		l.Group = nil
		for _, s := range found {
			l.Group = append(l.Group, Socket{Inode: s.inode, Queue: s.queue, Backlog: s.backlog})
		}
		l.mark()
	}
	l.Listening = len(found) > 0
	if l.Listening {
		l.last, l.Held, l.EverListening = l.inodes, false, true
		l.AbsentDumps, l.AbsentFor, l.absent = 0, 0, 0
	} else {
		l.AbsentDumps++
		if l.AbsentDumps == 1 {
			l.absent = at
		}
		l.AbsentFor = at - l.absent
	}
	if moved {
		maps.DeleteFunc(l.held, func(i uint64, _ bool) bool { return !slices.Contains(l.inodes, i) && !slices.Contains(l.last, i) })
	}
	return moved
}

// loose makes every LISTEN inode of the host interesting.
func (t *target) loose(sockets []socket) (moved bool) {
	fresh := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		if s.path != "" {
			continue // declared by another target: only TCP is counted without a declaration
		}
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
	e.Seq, t.seqAt = t.seq, max(t.seqAt, e.At)
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
		Main:    Main{Status: t.status, Why: t.why, Unnamed: t.unnamed, LastAlive: t.lastAlive, Reaped: t.reaped > 0},
		Trouble: t.trouble, FDsUnknown: t.fdTrouble,
		Events: slices.Clip(t.events[max(0, len(t.events)-EventsKept):]),
	}
	if t.main != nil {
		s.Main.Process = t.main.view
		s.Cgroup, s.OOMKills = t.cgroup, t.oomKills
		if t.status == MainGone {
			s.Main.Process.State, s.Main.Process.Listens = checks.ProcGone, false
		}
	}
	s.DumpTrouble = spaceTrouble(dumpErr)
	s.StaleConfig, s.StaleSince = t.staleFile, t.staleSince
	s.OOMUnknown, s.GaveUp = !t.oomKnown, t.gaveUp
	for _, p := range t.kids {
		s.Workers = append(s.Workers, p.view)
	}
	slices.SortFunc(s.Workers, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
	})
	for _, l := range t.listeners {
		s.Listeners = append(s.Listeners, l.Listener)
		last := &s.Listeners[len(s.Listeners)-1]
		last.Owners = t.asNow(last.Owners)
	}
	t.published.Store(s)
}

// asNow are owners as they are now: who owns what is found out less often than
// how they are.
func (t *target) asNow(owners []Owner) []Owner {
	out := slices.Clone(owners)
	for i := range out {
		p := t.kids[out[i].ID]
		if t.main != nil && t.main.view.ID == out[i].ID {
			p = t.main
		}
		if p != nil {
			out[i].Process = p.view
			out[i].Listens = true
		}
	}
	return out
}

// sameSlice reports whether two slices are the same memory.
func sameSlice[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// forget lets go of a process's pidfd.
func (o *Observer) forget(p *proc) {
	if p.token != 0 {
		delete(o.tokens, p.token)
		p.token = 0
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
		o.pidfds--
	}
	if p.keeps {
		o.kernel.fs.release(p.view.PID)
		p.keeps = false
	}
}
