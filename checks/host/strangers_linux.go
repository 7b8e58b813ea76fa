package host

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// orphanFor is how long a socket must be without an owner in the target
	// before all of /proc is walked for one: a worker just born looks like that.
	// againAfter is when what a walk found is looked at a second time. Both
	// chosen: known twice within half a second of the bind.
	orphanFor  = 100 * time.Millisecond
	againAfter = 100 * time.Millisecond
	// walkShare bounds what walks of all of /proc cost: a walk is followed by a
	// pause of so many times its duration, walkPause at most. Chosen: 10 % of a
	// core while something is wrong.
	walkShare = 10
	walkPause = 10 * time.Second
)

// lost is what is known of one LISTEN socket that nobody of the target holds.
// The zero value is a socket just found to be.
type lost struct {
	since   time.Duration
	scan    backoff
	walked  bool
	holders []holder
	unknown string // why nobody was found, if somebody may be there
}

// holder is a process outside the target that has the socket open.
type holder struct {
	id   ID
	fd   int
	kin  bool // it may: see Observer.kin
	view Process
}

// strange reports whether strangers hold the socket, and nobody else that we know.
func (s *lost) strange() bool {
	return len(s.holders) > 0 && !slices.ContainsFunc(s.holders, func(h holder) bool { return h.kin })
}

// strangers looks for the owners of the sockets of l that nobody of the target
// holds; found are those that somebody does. A walk names them, and each sweep
// after it looks whether they still are who they were.
func (o *Observer) strangers(t *target, l *listener, found map[uint64]bool, now time.Duration) {
	for inode := range l.lost {
		if found[inode] || !slices.Contains(l.inodes, inode) {
			delete(l.lost, inode)
		}
	}
	for _, inode := range l.inodes {
		if found[inode] {
			continue
		}
		if l.lost == nil {
			l.lost = map[uint64]*lost{}
		}
		s := l.lost[inode]
		if s == nil {
			s = &lost{since: now}
			l.lost[inode] = s
		}
		if s.walked && !o.stillHeld(inode, s, now) {
			s.walked, s.scan = false, backoff{}
		}
		o.walk(t, s, now)
	}
	o.count(t, l, now)
}

// walk walks all of /proc, if it is time, for everybody who waits for one.
func (o *Observer) walk(t *target, s *lost, now time.Duration) {
	due := max(s.since+orphanFor, s.scan.next, o.walkAt)
	if now < due {
		if !s.walked {
			t.wake(due)
		}
		return
	}
	began := o.kernel.now()
	holders, refused, err := o.holders(o.wanted())
	now = o.kernel.now()
	o.walkAt = now + min(walkShare*(now-began), walkPause)
	if err != nil {
		s.scan.due(now, 0)
		s.unknown = err.Error()
		return
	}
	for _, other := range o.targets {
		for _, l := range other.listeners {
			for inode, s := range l.lost {
				o.settle(other, inode, s, holders[inode], refused, now)
			}
		}
	}
}

// wanted are the sockets that a walk looks for.
func (o *Observer) wanted() map[uint64]bool {
	set := map[uint64]bool{}
	for _, t := range o.targets {
		for _, l := range t.listeners {
			for inode := range l.lost {
				set[inode] = true
			}
		}
	}
	return set
}

// settle takes what a walk found about one lost socket.
func (o *Observer) settle(t *target, inode uint64, s *lost, found []holding, refused int, now time.Duration) {
	s.walked, s.unknown, s.holders = true, "", s.holders[:0]
	s.scan.due(now, 0)
	if len(found) == 0 && refused > 0 {
		s.unknown = refusedWhy(refused)
	}
	held := slices.ContainsFunc(t.listeners, func(l *listener) bool { return l.held[inode] })
	for _, f := range found {
		h := holder{id: ID{f.pid, f.start}, fd: f.fd}
		h.kin = held || o.kin(t, &f.stat)
		h.view = Process{ID: h.id, PPID: f.ppid, Comm: f.comm, State: f.procState(), Exe: o.kernel.fs.exe(f.pid),
			Title: title(o.kernel.fs.arguments(f.pid)), Born: f.born(), Age: max(0, now-f.born()), Listens: true}
		s.holders = append(s.holders, h)
	}
}

// stillHeld looks again at those a walk found, which costs far less than a walk.
func (o *Observer) stillHeld(inode uint64, s *lost, now time.Duration) bool {
	for i := range s.holders {
		h := &s.holders[i]
		st, err := o.kernel.fs.stat(h.id.PID)
		if err != nil || st.start != h.id.StartTicks {
			return false
		}
		if got, ok := o.kernel.fs.fdInode(h.id.PID, h.fd); !ok || got != inode {
			return false
		}
		h.view.State, h.view.PPID, h.view.Age = st.procState(), st.ppid, max(0, now-h.view.Born)
	}
	return true
}

// count brings the listener's count of looks up to date and marks its sockets.
func (o *Observer) count(t *target, l *listener, now time.Duration) {
	any := false
	for _, s := range l.lost {
		any = any || s.walked && s.strange()
	}
	switch {
	case !any:
		l.ForeignLook, l.ForeignSince = 0, 0
	case l.ForeignLook == 0:
		l.ForeignLook, l.ForeignSince, l.lookedAt = 1, now, now
		t.wake(now + againAfter)
		t.changed = true
	case now-l.lookedAt >= againAfter:
		l.ForeignLook++
		l.lookedAt = now
		t.changed = t.changed || l.ForeignLook == 2
	default:
		t.wake(l.lookedAt + againAfter)
	}
	l.mark()
}

// mark sets Foreign in a new copy of the group, if it changed: snapshots share
// the old one.
func (l *listener) mark() {
	copied := false
	for i := range l.Group {
		s := l.lost[l.Group[i].Inode]
		foreign := s != nil && s.walked && s.strange()
		if l.Group[i].Foreign == foreign {
			continue
		}
		if !copied {
			l.Group, copied = slices.Clone(l.Group), true
		}
		l.Group[i].Foreign = foreign
	}
}

// outsiders are the owners that the walks found, each once; unknown says why
// there may be others.
func (l *listener) outsiders() (out []Owner, unknown string) {
	seen := map[ID]bool{}
	for _, inode := range l.inodes {
		s := l.lost[inode]
		if s == nil {
			continue
		}
		if s.unknown != "" {
			unknown = s.unknown
		}
		for _, h := range s.holders {
			if seen[h.id] {
				continue
			}
			seen[h.id] = true
			role := checks.RoleForeign
			if h.kin {
				role = checks.RoleWorker
			}
			out = append(out, Owner{Process: h.view, Role: role})
		}
	}
	return out, unknown
}

// kin reports whether a process outside the target's known processes may hold
// its sockets: pid 1 and its like (socket activation), a forwarder of
// containers' ports, one of main's tree forked since the sweep, one of its unit
// or container, or one that runs the same program.
func (o *Observer) kin(t *target, s *stat) bool {
	if s.pid == 1 || s.comm == "systemd" || s.comm == "docker-proxy" || s.comm == "rootlessport" {
		return true
	}
	if o.ancestor(s.pid, func(pid int) bool {
		return slices.ContainsFunc(t.procs(), func(p *proc) bool { return !p.dead && p.view.PID == pid })
	}) {
		return true
	}
	return sameProgram(t.program, o.programOf(s.pid)) || t.unit != "" && t.unit == o.unitOf(s.pid)
}

// wake brings the next sweep forward.
func (t *target) wake(at time.Duration) {
	if t.wakeAt == 0 || at < t.wakeAt {
		t.wakeAt = at
	}
}

// arguments are those of a process's command line; nil if they may not be read.
func (p *procfs) arguments(pid int) []string {
	b, err := p.read(p.join(pid, "/cmdline"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

// title is a command line in one line, at most 128 bytes.
func title(args []string) string { return clip([]byte(strings.Join(args, " ")), 125) }

// unitOf names the systemd unit or container in which a process runs; empty if
// it runs in none that tells it from others: the root, a slice, a session, or
// the group that we are in ourselves.
func (o *Observer) unitOf(pid int) string {
	b, err := o.kernel.fs.read(o.kernel.fs.join(pid, "/cgroup"))
	if err != nil {
		return ""
	}
	unit := unitOf(parseCgroups(b))
	if unit == "" || unit == o.ownUnit() {
		return ""
	}
	return unit
}

func (o *Observer) ownUnit() string {
	b, err := o.kernel.fs.read(o.kernel.fs.join(os.Getpid(), "/cgroup"))
	if err != nil {
		return ""
	}
	return unitOf(parseCgroups(b))
}

func refusedWhy(refused int) string {
	return fmt.Sprintf("the descriptors of %d processes may not be read: the agent needs CAP_SYS_PTRACE", refused)
}
