package host

import (
	"errors"
	"fmt"
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
	switch {
	case t.cfg.PIDFile != "":
		o.mainByPIDFile(t, alive, now)
	case t.cfg.Unit != "":
		o.mainByUnit(t, alive, now)
	case t.cfg.Cgroup != "":
		o.mainByGroup(t, func(h hierarchies) []string { return h.groupDirs(t.cfg.Cgroup) }, "control group "+t.cfg.Cgroup, alive, now)
	case t.cfg.Exe != "" || t.cfg.Cmdline != "":
		o.mainByProgram(t, alive, now)
	default:
		o.mainByPort(t, alive, now)
	}
	if t.status == MainAlive {
		t.lastAlive = now
		// It may become another program while it is young, and be moved later.
		if since := now - t.located; since >= regroup && !t.main.reading.calm || since >= 6*regroup || t.main.view.Age < youngAgain && since >= settled {
			o.locate(t)
		}
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
	if p.reading.calm {
		t.rest(p, now)
		return true
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
	if alive && t.pidFileSame && !t.fast && now-t.pidFileAt < 2*slowEvery && t.status == MainAlive && t.why == "" {
		return
	}
	t.pidFileSame, t.unnamed = false, false
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
		t.unnamed = errors.Is(err, unix.ENOENT) || errors.Is(err, errEmpty)
		return
	case alive && pid == t.main.view.PID:
		t.pidFile, t.heirOf = file, ID{}
		o.obey(t, now)
		return
	case alive && pid == t.heirOf.PID && file == t.pidFile:
		o.obey(t, now) // its child does its work; gunicorn writes the file anew in the end
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
	clear(t.briefs)
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
	t.startStack, t.heirOf = s.startStack, ID{}
	o.locate(t)
	t.status, t.why = MainAlive, ""
	t.record(Event{Kind: MainFound, Process: t.main.view.ID, Comm: s.comm, Born: s.born(), At: now})
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
