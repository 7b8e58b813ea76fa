package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// heldFD is a descriptor behind which a socket of interest was found.
type heldFD struct {
	fd    int
	inode uint64
}

const (
	// youngFDs is how long a process without a socket of interest is looked
	// through on each sweep: it may bind yet. After it, every rescanFDs, for a
	// socket can be handed over. Both chosen.
	youngFDs  = 5 * time.Second
	rescanFDs = 30 * time.Second
)

// owners finds out who of the target holds its sockets.
func (o *Observer) owners(t *target, now time.Duration) {
	if len(t.inodes) == 0 {
		for _, p := range t.procs() {
			p.view.Listens, p.view.FDsUnknown = false, false
		}
		for _, l := range t.listeners {
			l.Owners, l.OwnersUnknown = nil, ""
		}
		return
	}
	for _, p := range t.procs() {
		if p.dead || p == t.main && t.status != MainAlive {
			continue
		}
		o.lookFDs(t, p, now)
		p.view.FDsUnknown = p.fdErr != nil
		if p.fdErr != nil && t.fdTrouble == "" {
			t.fdTrouble = fdTrouble(p.view.PID, p.fdErr)
		}
	}
	for _, l := range t.listeners {
		o.ownersOf(t, l, now)
	}
	t.markListens()
}

func fdTrouble(pid int, err error) string {
	if denied(err) {
		return fmt.Sprintf("the descriptors of pid %d may not be read: the agent needs CAP_SYS_PTRACE", pid)
	}
	return fmt.Sprintf("the descriptors of pid %d could not be read: %v", pid, err)
}

// lookFDs refreshes which sockets of interest p holds. A look through the
// whole table happens only for new processes, new sockets, and when a known
// descriptor is not what it was.
func (o *Observer) lookFDs(t *target, p *proc, now time.Duration) {
	full := p.fdsAt == 0 || p.fdVersion != t.version || p.fdErr != nil
	for _, h := range p.fds {
		inode, ok := o.kernel.fs.fdInode(p.view.PID, h.fd)
		full = full || !ok || inode != h.inode
	}
	if len(p.fds) == 0 {
		full = full || p.view.Age < youngFDs || now-p.fdsAt >= rescanFDs
	}
	if !full {
		return
	}
	p.fdsAt, p.fdVersion = now, t.version
	fds := p.fds[:0]
	p.fdErr = o.sockets(p.view.PID, func(fd int, inode uint64) {
		if t.inodes[inode] {
			fds = append(fds, heldFD{fd, inode})
		}
	})
	p.fds = fds
	if gone(p.fdErr) {
		p.fds, p.fdErr = nil, nil // it ended: the next sweep says so
	}
}

// sockets calls fn with each socket of a process.
func (o *Observer) sockets(pid int, fn func(fd int, inode uint64)) error {
	fs := o.kernel.fs
	var fds [64]int
	open := fds[:0]
	if err := fs.numbers(fs.join(pid, "/fd"), func(n int) { open = append(open, n) }); err != nil {
		return err
	}
	for _, fd := range open {
		if inode, ok := fs.fdInode(pid, fd); ok {
			fn(fd, inode)
		}
	}
	return nil
}

// ownersOf fills in one listener.
func (o *Observer) ownersOf(t *target, l *listener, now time.Duration) {
	l.Owners, l.Held, l.OwnersUnknown = nil, false, ""
	found := map[uint64]bool{}
	for _, p := range t.procs() {
		if p.dead || p == t.main && t.status != MainAlive {
			continue
		}
		if l.take(p, found) {
			v := p.view
			v.Listens = true
			role := checks.RoleWorker
			if p == t.main {
				role = checks.RoleMain
			}
			l.Owners = append(l.Owners, Owner{Process: v, Role: role})
		}
	}
	slices.SortFunc(l.Owners, func(a, b Owner) int { return a.PID - b.PID })
	if t.main == nil || t.fdTrouble != "" {
		// Who is a stranger cannot be told.
		l.lost = nil
		o.count(t, l, now)
	} else {
		o.strangers(t, l, found, now)
	}
	outside, unknown := l.outsiders()
	l.Owners = append(l.Owners, outside...)
	switch {
	case len(l.Owners) > 0 || !l.Listening:
	case t.fdTrouble != "":
		l.OwnersUnknown = t.fdTrouble
	case t.status != MainAlive && t.trouble.Reason == checks.ReasonNoPermission:
		l.OwnersUnknown = t.trouble.Detail
	case t.status != MainAlive:
		l.OwnersUnknown = "the main process is not known"
	default:
		l.OwnersUnknown = unknown
	}
}

// take notes what p holds of the listener's sockets and reports whether that is
// one that listens.
func (l *listener) take(p *proc, found map[uint64]bool) (holds bool) {
	for _, h := range p.fds {
		if slices.Contains(l.inodes, h.inode) {
			holds, found[h.inode] = true, true
			if l.held == nil {
				l.held = map[uint64]bool{}
			}
			l.held[h.inode] = true
		}
		if !l.Listening && slices.Contains(l.last, h.inode) {
			l.Held = true
		}
	}
	return holds
}

// markListens sets Listens on the processes that hold a LISTEN socket now.
func (t *target) markListens() {
	live := t.inodes
	if len(t.listeners) > 0 {
		live = map[uint64]bool{}
		for _, l := range t.listeners {
			for _, i := range l.inodes {
				live[i] = true
			}
		}
	}
	for _, p := range t.procs() {
		p.view.Listens = !p.dead && slices.ContainsFunc(p.fds, func(h heldFD) bool { return live[h.inode] })
	}
}

// holding is a process that has a socket open, and under which number.
type holding struct {
	stat
	fd int
}

// holders walks all of /proc for the processes that have one of the sockets
// open. refused counts those whose descriptors we may not read.
func (o *Observer) holders(want map[uint64]bool) (out map[uint64][]holding, refused int, err error) {
	o.stats.scans.Add(1)
	var pids []int
	if err := o.kernel.fs.numbers(o.kernel.fs.root, func(n int) { pids = append(pids, n) }); err != nil {
		return nil, 0, fmt.Errorf("walk %s: %w", o.kernel.fs.root, err)
	}
	out = map[uint64][]holding{}
	for _, pid := range pids {
		var fds []heldFD
		err := o.sockets(pid, func(fd int, inode uint64) {
			if want[inode] && !slices.ContainsFunc(fds, func(h heldFD) bool { return h.inode == inode }) {
				fds = append(fds, heldFD{fd, inode})
			}
		})
		switch {
		case denied(err):
			refused++
		case err != nil && !gone(err):
			return nil, 0, errors.Join(fmt.Errorf("walk %s", o.kernel.fs.root), err)
		}
		if len(fds) == 0 {
			continue
		}
		if s, err := o.kernel.fs.stat(pid); err == nil {
			for _, h := range fds {
				out[h.inode] = append(out[h.inode], holding{s, h.fd})
			}
		}
	}
	return out, refused, nil
}
