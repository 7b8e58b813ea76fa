package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// inheritEvery is how often at most a lone child is looked at closely; chosen: a
// new main is known within a sweep of its old one's last worker, at little cost.
const inheritEvery = 200 * time.Millisecond

// mainByPort finds main as the owner of the listening port.
func (o *Observer) mainByPort(t *target, alive bool, now time.Duration) {
	l := t.listeners[0] // the port: see Target.listeners
	if o.keepMain(t, alive, now) {
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
	want := map[uint64]bool{}
	for _, inode := range l.inodes {
		want[inode] = true
	}
	found, refused, err := o.holders(want)
	holders := processes(found)
	able := o.able(t, holders)
	t.scanTrouble = Trouble{}
	switch {
	case err != nil:
		t.blame(err)
		t.scanTrouble = t.trouble
	case len(holders) == 0 && refused > 0:
		t.scanTrouble = Trouble{checks.ReasonNoPermission, fmt.Sprintf("owner of %s unknown: %s", l.Addr, refusedWhy(refused))}
		t.trouble = t.scanTrouble
		t.missing(false, t.trouble.Detail)
	case len(holders) == 0:
		t.missing(false, fmt.Sprintf("no process of this host holds the socket that listens on %s", l.Addr))
	case len(able) == 0:
		t.missing(false, fmt.Sprintf("%s is held by workers alone, whose main process has ended", l.Addr))
	default:
		s := o.mainAmong(able)
		// Whoever has the port of a dead main is its successor only if it could be.
		if t.main != nil && !o.kin(t, &s) {
			t.missing(false, fmt.Sprintf("%s is held by pid %d (%s), which runs another program", l.Addr, s.pid, s.comm))
			return
		}
		o.take(t, &s, now)
	}
}

// keepMain keeps a main that lives, or makes its successor main, and reports
// whether there is one.
func (o *Observer) keepMain(t *target, alive bool, now time.Duration) bool {
	if alive {
		t.status, t.why = MainAlive, ""
		o.succeed(t, now)
		o.inherit(t, now)
	}
	return alive
}

// succeed makes another process main if it holds a listener and runs the same
// program, and neither main nor one of its tree holds any: the old main of an
// upgrade may live on for days. A stranger who took the port is none.
func (o *Observer) succeed(t *target, now time.Duration) {
	var holders []stat
	for _, l := range t.listeners {
		for _, owner := range l.Owners {
			lost := slices.ContainsFunc(l.inodes, func(i uint64) bool { return l.lost[i] != nil })
			if !l.Listening || !lost || owner.Role == checks.RoleMain || t.kids[owner.ID] != nil {
				return
			}
			s, err := o.kernel.fs.stat(owner.PID)
			if err == nil && s.start == owner.StartTicks && sameProgram(t.program, o.programOf(s.pid)) {
				holders = append(holders, s)
			}
		}
	}
	if len(holders) == 0 {
		return
	}
	s := o.mainAmong(holders)
	if s.pid == t.main.view.PID || !sameProgram(t.program, o.programOf(s.pid)) {
		return
	}
	o.take(t, &s, now)
}

// obey keeps the main that somebody names, unless a child of it does its work.
func (o *Observer) obey(t *target, now time.Duration) {
	t.status, t.why = MainAlive, ""
	o.inherit(t, now)
}

// inherit makes a child of main the new main when it does main's work: the main
// of a binary upgrade begins as a child of the old one, which lives on without
// workers until it is told to quit (nginx, gunicorn: USR2, WINCH, QUIT). Such a
// child was started, not forked (its stack is elsewhere), runs the same program, is the only one that listens, and has children that it forked.
func (o *Observer) inherit(t *target, now time.Duration) {
	var child *proc
	for _, p := range t.kids {
		if p.dead || !p.view.Listens && len(t.listeners) > 0 {
			continue
		}
		if child != nil {
			return
		}
		child = p
	}
	if child == nil || child.forked || child.view.Age < settled || child.view.Exe == "" || now < t.inheritAt {
		return
	}
	t.inheritAt = now + inheritEvery
	fs := o.kernel.fs
	s, err := fs.stat(child.view.PID)
	main, err2 := fs.stat(t.main.view.PID)
	if err != nil || err2 != nil || s.start != child.view.StartTicks {
		return
	}
	if !apart(&s, main.startStack) {
		child.forked = true // for good: a worker that became another program has another name
		return
	}
	if !sameProgram(t.program, o.programOf(s.pid)) {
		return
	}
	kids, err := fs.children(s.pid, nil)
	if err != nil {
		return
	}
	for _, pid := range kids {
		if k, err := fs.stat(pid); err == nil && k.startStack == s.startStack {
			old := t.main.view.ID
			o.take(t, &s, now)
			t.heirOf = old
			return
		}
	}
}

// mainAmong names main among the owners of a port: the parent they share, if it
// is not pid 1 and runs the same executable (its workers bind, it does not);
// else the owner above the others; the oldest if there are several.
func (o *Observer) mainAmong(owners []stat) stat {
	fs := o.kernel.fs
	parent, same := owners[0].ppid, true
	for _, s := range owners {
		same = same && s.ppid == parent
	}
	if same && parent > 1 {
		exe := fs.exe(parent)
		s, err := fs.stat(parent)
		// A parent of another user shows its name, though not its executable.
		if err == nil && (exe != "" && exe == fs.exe(owners[0].pid) || exe == "" && s.comm == owners[0].comm) {
			return s
		}
	}
	return o.topmost(owners)
}

// able are those that could be main: not the workers that a dead main left
// behind, which it forked. One that was started, and has children of its own, is
// the main of an upgrade.
func (o *Observer) able(t *target, all []stat) (out []stat) {
	for _, s := range all {
		if t.kids[ID{s.pid, s.start}] != nil {
			kids, err := o.kernel.fs.children(s.pid, nil)
			if err != nil || len(kids) == 0 || !apart(&s, t.startStack) {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// apart reports whether a process was started by execve(2) since it shared the
// stack of another, forked from it or not. False if that may not be seen.
func apart(s *stat, stack uint64) bool {
	return s.startStack != 0 && stack != 0 && s.startStack != stack
}

// topmost is the one that is no descendant of another; the oldest of several.
func (o *Observer) topmost(all []stat) stat {
	byPID := map[int]bool{}
	for _, s := range all {
		byPID[s.pid] = true
	}
	var top *stat
	for i := range all {
		if o.ancestor(all[i].ppid, func(pid int) bool { return byPID[pid] }) {
			continue
		}
		if top == nil || all[i].start < top.start {
			top = &all[i]
		}
	}
	if top == nil { // a loop of parents: processes came and went while we looked
		return all[0]
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

// processes are the holders of some sockets, each once.
func processes(found map[uint64][]holding) (out []stat) {
	seen := map[int]bool{}
	for _, all := range found {
		for _, h := range all {
			if !seen[h.pid] {
				seen[h.pid] = true
				out = append(out, h.stat)
			}
		}
	}
	slices.SortFunc(out, func(a, b stat) int { return a.pid - b.pid })
	return out
}

// locate learns what tells main's kin from strangers.
func (o *Observer) locate(t *target) {
	pid := t.main.view.PID
	t.located = o.kernel.now()
	t.program, t.unit = o.programOf(pid), o.unitOf(pid)
}

func (o *Observer) programOf(pid int) string {
	fs := o.kernel.fs
	return programName(fs.exe(pid), fs.arguments(pid))
}
