package host

import (
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

// fileID tells one writing of a pid file from the next.
type fileID struct {
	inode, size uint64
	mtime       int64
}

// readPIDFile reads a pid file and its identity.
func readPIDFile(path string) (pid int, id fileID, err error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return 0, id, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, id, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, id, errors.New("is no regular file")
	}
	id = fileID{inode: st.Ino, size: uint64(st.Size), mtime: st.Mtim.Nano()}
	var b [64]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, id, err
	}
	pid, err = parsePIDFile(b[:n])
	return pid, id, err
}

// resolveMain finds main, or says why there is none.
func (o *Observer) resolveMain(t *target, now time.Duration) {
	alive := o.checkMain(t, now)
	if t.trouble != (Trouble{}) {
		return // we could not look: what we knew stands
	}
	was, why := t.status, t.why
	if t.cfg.PIDFile != "" {
		o.mainByPIDFile(t, alive, now)
	} else {
		o.mainByPort(t, alive, now)
	}
	if t.status == MainAlive {
		t.lastAlive = now
	}
	if t.status != was || t.why != why {
		t.changed = true
		o.log.Info("main process", "target", t.cfg.Name, "status", string(t.status), "why", t.why)
	}
}

// checkMain brings the known main up to date and reports whether it lives.
func (o *Observer) checkMain(t *target, now time.Duration) (alive bool) {
	p := t.main
	if p == nil || p.dead {
		return false
	}
	s, err := o.kernel.fs.stat(p.view.PID)
	switch {
	case err != nil && !gone(err):
		t.blame(err)
		return true
	case err != nil && p.diedAt == 0 && o.hidden(p.view.PID):
		t.trouble = hiddenTrouble(p.view.PID)
		return true
	case err != nil || s.start != p.view.StartTicks || s.procState() == checks.ProcGone:
		o.died(t, p, nil, now)
	default:
		o.update(t, p, &s, now)
	}
	if p.dead {
		o.forget(p)
	}
	return !p.dead
}

func (o *Observer) mainByPIDFile(t *target, alive bool, now time.Duration) {
	pid, file, err := readPIDFile(t.cfg.PIDFile)
	name := "pid file " + t.cfg.PIDFile
	switch {
	case denied(err):
		t.trouble = Trouble{checks.ReasonNoPermission, name + ": permission denied: the agent must be able to read it"}
		return
	case err != nil && !errors.Is(err, unix.ENOENT) && isErrno(err):
		t.blame(fmt.Errorf("%s: %w", name, err))
		return
	case err != nil:
		why := name + " " + err.Error()
		if errors.Is(err, unix.ENOENT) {
			why = name + " does not exist"
		}
		t.missing(alive, why)
		return
	case alive && pid == t.main.view.PID:
		t.status, t.why, t.pidFile = MainAlive, "", file
		return
	}
	s, err := o.kernel.fs.stat(pid)
	known := t.main != nil && t.main.view.PID == pid
	switch {
	case gone(err) && o.hidden(pid):
		t.trouble = hiddenTrouble(pid)
	case gone(err):
		t.missing(alive, fmt.Sprintf("%s names pid %d, which does not run", name, pid))
		if t.status == MainUnknown {
			t.status = MainGone
		}
	case err != nil:
		t.blame(err)
	case s.procState() == checks.ProcZombie || s.procState() == checks.ProcGone:
		t.missing(alive, fmt.Sprintf("%s names pid %d, which has ended and awaits its parent (zombie)", name, pid))
		if t.status == MainUnknown {
			t.status = MainGone
		}
	case known && file == t.pidFile:
		t.missing(alive, fmt.Sprintf("%s still names pid %d, which now belongs to another process", name, pid))
	default:
		t.pidFile = file
		o.take(t, &s, now)
	}
}

// missing says why there is no main where we looked. One that we know and
// that lives stays main.
func (t *target) missing(alive bool, why string) {
	switch {
	case alive:
		t.status, t.why = MainAlive, why+"; the main process found before still runs"
	case t.main != nil:
		t.status, t.why = MainGone, why
	default:
		t.status, t.why = MainUnknown, why
	}
}

// take makes a process main: a new generation.
func (o *Observer) take(t *target, s *stat, now time.Duration) {
	for _, p := range t.procs() {
		o.forget(p)
	}
	clear(t.kids)
	t.counted, t.reaped, t.lastExit = false, 0, 0
	for _, l := range t.listeners {
		l.EverListening = l.Listening
		l.Held = false
		l.last = l.inodes
	}
	t.version++
	t.inodes = t.interest()
	t.main = o.meet(t, s, now)
	t.main.view.Exe = o.kernel.fs.exe(s.pid)
	t.status, t.why = MainAlive, ""
	t.record(Event{Kind: MainFound, Process: t.main.view.ID, Comm: s.comm, Born: s.born(), At: now})
}

// mainByPort finds main as the owner of the listening port.
func (o *Observer) mainByPort(t *target, alive bool, now time.Duration) {
	l := t.listeners[0] // the port: see Target.listeners
	if alive {
		t.status, t.why = MainAlive, ""
		o.succeed(t, l, now)
		return
	}
	if !l.Listening {
		t.missing(false, fmt.Sprintf("nobody listens on %s", l.Addr))
		return
	}
	if !t.scan.due(now, t.version) {
		t.trouble = t.scanTrouble
		t.missing(false, t.why)
		return
	}
	holders, refused, err := o.holders(l.inodes)
	t.scanTrouble = Trouble{}
	switch {
	case err != nil:
		t.blame(err)
		t.scanTrouble = t.trouble
	case len(holders) == 0 && refused > 0:
		t.scanTrouble = Trouble{checks.ReasonNoPermission, fmt.Sprintf("owner of %s unknown: the descriptors of %d processes may not be read: the agent needs CAP_SYS_PTRACE", l.Addr, refused)}
		t.trouble = t.scanTrouble
		t.missing(false, t.trouble.Detail)
	case len(holders) == 0:
		t.missing(false, fmt.Sprintf("no process of this host holds the socket that listens on %s", l.Addr))
	default:
		s := o.mainAmong(holders)
		o.take(t, &s, now)
	}
}

// succeed makes another process main if it holds the port and runs a program of
// the same name, and neither main nor one of its tree holds it: the old main of
// an upgrade may live on for days. A stranger who took the port is none.
func (o *Observer) succeed(t *target, l *listener, now time.Duration) {
	if !l.Listening || len(l.foreign) == 0 || len(l.foreign) != len(l.Owners) {
		return
	}
	var holders []stat
	for _, f := range l.foreign {
		if s, err := o.kernel.fs.stat(f.PID); err == nil && s.start == f.StartTicks {
			holders = append(holders, s)
		}
	}
	if len(holders) == 0 {
		return
	}
	s := o.mainAmong(holders)
	exe := o.kernel.fs.exe(s.pid)
	if s.pid == t.main.view.PID || exe == "" || path.Base(exe) != path.Base(t.main.view.Exe) {
		return
	}
	l.foreign, l.orphan = nil, 0
	o.take(t, &s, now)
}

// mainAmong names main among the owners of a port: the parent they share, if it
// is not pid 1 and runs the same executable (its workers bind, it does not);
// else the owner above the others; the oldest if there are several.
func (o *Observer) mainAmong(owners []stat) stat {
	fs := o.kernel.fs
	parent, same := owners[0].ppid, true
	byPID := map[int]bool{}
	for _, s := range owners {
		same = same && s.ppid == parent
		byPID[s.pid] = true
	}
	if same && parent > 1 {
		exe := fs.exe(parent)
		s, err := fs.stat(parent)
		// A parent of another user shows its name, though not its executable.
		if err == nil && (exe != "" && exe == fs.exe(owners[0].pid) || exe == "" && s.comm == owners[0].comm) {
			return s
		}
	}
	var top *stat
	for i := range owners {
		if o.ancestor(owners[i].ppid, func(pid int) bool { return byPID[pid] }) {
			continue
		}
		if top == nil || owners[i].start < top.start {
			top = &owners[i]
		}
	}
	if top == nil { // a loop of parents: processes came and went while we looked
		return owners[0]
	}
	return *top
}

// ancestor reports whether pid or one of its ancestors satisfies is.
func (o *Observer) ancestor(pid int, is func(pid int) bool) bool {
	for range 64 { // deeper than any process tree we saw; ends loops of reused pids
		if pid <= 1 {
			return pid == 1 && is(1)
		}
		if is(pid) {
			return true
		}
		s, err := o.kernel.fs.stat(pid)
		if err != nil {
			return false
		}
		pid = s.ppid
	}
	return false
}

func isErrno(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}

// backoff spaces out walks of all of /proc: 1 s, doubling to 30 s (chosen: a
// walk costs up to 0.1 s of CPU), at once when the sockets changed.
type backoff struct {
	next    time.Duration
	wait    time.Duration
	version uint64
}

func (b *backoff) due(now time.Duration, version uint64) bool {
	if version != b.version {
		*b = backoff{version: version}
	}
	if now < b.next {
		return false
	}
	b.wait = min(max(2*b.wait, time.Second), 30*time.Second)
	b.next = now + b.wait
	return true
}
