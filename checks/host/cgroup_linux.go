package host

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

// regroup is how often it is read again in which control group a process is, for
// it can be moved. Chosen: within half of what a frozen worker may take (10 s).
const regroup = 5 * time.Second

// groupFile is a file of a control group that stays open: reading it costs a
// tenth of opening it.
type groupFile struct{ fd int }

func openGroupFile(path string) groupFile {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return groupFile{-1}
	}
	return groupFile{fd}
}

// read returns its content; ok is false if the group is gone or has no such file.
func (f groupFile) read(buf []byte) (b []byte, ok bool) {
	if f.fd < 0 {
		return nil, false
	}
	n, err := unix.Pread(f.fd, buf, 0)
	return buf[:max(n, 0)], err == nil && n > 0
}

func (f *groupFile) close() {
	if f.fd >= 0 {
		unix.Close(f.fd)
		f.fd = -1
	}
}

// group is what is known of the control groups that some processes share.
type group struct {
	paths  groups
	frozen bool
	gone   bool          // it was removed
	read   time.Duration // when frozen was read
	used   time.Duration // when a process was last in it

	events  groupFile // v2: cgroup.events
	freezer groupFile // v1: freezer.state
}

// groupOf returns the groups of a process, shared with those that are in the same.
func (o *Observer) groupOf(pid int, now time.Duration) *group {
	b, err := o.kernel.fs.readNow(o.kernel.fs.pathTo(pid, "/cgroup"))
	if err != nil {
		return nil
	}
	if g := o.groups[string(b)]; g != nil && !g.gone {
		g.used = now
		return g
	} else if g != nil {
		g.close() // one of the same name was removed
	}
	g := &group{paths: parseCgroups(b), used: now, events: groupFile{-1}, freezer: groupFile{-1}}
	if dir, ok := o.kernel.hierarchies.dir("", g.paths[""]); ok {
		g.events = openGroupFile(dir + "/cgroup.events")
	}
	if dir, ok := o.kernel.hierarchies.dir("freezer", g.paths["freezer"]); ok {
		g.freezer = openGroupFile(dir + "/freezer.state")
	}
	if o.groups == nil {
		o.groups = map[string]*group{}
	}
	o.groups[string(b)] = g
	return g
}

func (g *group) close() {
	g.events.close()
	g.freezer.close()
}

// look reads whether the group is frozen, by itself or by one above it. It
// reports false if the group was removed.
func (g *group) look(buf []byte, now time.Duration) bool {
	if g.read == now {
		return !g.gone
	}
	g.read, g.frozen = now, false
	unified, v1 := true, true
	var b []byte
	if g.events.fd >= 0 {
		b, unified = g.events.read(buf)
		v, _ := keyed(b, "frozen")
		g.frozen = v == 1
	}
	if g.freezer.fd >= 0 {
		b, v1 = g.freezer.read(buf)
		g.frozen = g.frozen || string(b) == "FROZEN\n"
	}
	g.gone = !unified || !v1
	return !g.gone
}

// lookGroups learns in which groups the target's processes are and what became
// of those, before the processes are read.
func (o *Observer) lookGroups(t *target, now time.Duration) {
	if len(o.kernel.hierarchies) == 0 {
		return
	}
	for _, p := range t.procs() {
		if p.dead {
			continue
		}
		if p.group == nil || now-p.groupAt >= regroup && !p.reading.calm || now-p.groupAt >= 6*regroup {
			p.group, p.groupAt = o.groupOf(p.view.PID, now), now
		}
		if p.group != nil {
			p.group.used = now
			if !p.group.look(o.groupBuf[:], now) {
				p.groupAt = 0 // read again where it is now
			}
			if p.group.frozen != p.view.CgroupFrozen {
				p.reading.calm = false // its stat, too, is read in this sweep
			}
		}
	}
	o.lookOOM(t)
	for key, g := range o.groups {
		if now-g.used > 2*regroup {
			g.close()
			delete(o.groups, key)
		}
	}
}

// lookOOM reads how many processes of main's group the kernel killed for memory.
func (o *Observer) lookOOM(t *target) {
	if t.main == nil || t.main.group == nil || t.main.dead {
		return
	}
	paths := t.main.group.paths
	t.cgroup = paths.known()
	unified, v1 := paths[""], paths["memory"]
	if key := unified + "\n" + v1; key != t.oomOf {
		t.oomOf, t.oomFresh = key, true
		t.oom.close()
		t.oom = groupFile{-1}
		// The root has no such file, or one that counts for the whole host.
		if dir, ok := o.kernel.hierarchies.dir("", unified); ok && unified != "/" {
			t.oom = openGroupFile(dir + "/memory.events")
		}
		if dir, ok := o.kernel.hierarchies.dir("memory", v1); ok && v1 != "/" && t.oom.fd < 0 {
			t.oom = openGroupFile(dir + "/memory.oom_control")
		}
	}
	b, ok := t.oom.read(o.groupBuf[:])
	n, found := keyed(b, "oom_kill")
	t.oomKnown = ok && found
	switch {
	case !t.oomKnown:
		t.oomOf = "" // a unit that starts again has a new group of the same name
		return
	case t.oomFresh && t.oomCounted, n < t.oomSeen: // another group: only what it adds from now on
	case !t.oomCounted:
		t.oomKills = n
	default:
		t.oomKills += n - t.oomSeen
	}
	t.oomSeen, t.oomFresh, t.oomCounted = n, false, true
}

// stateOf is a process's state with what its control group does to it. v2 leaves
// a frozen process sleeping in its stat, v1 waiting for a disk.
func (p *proc) stateOf(s *stat) checks.ProcState {
	state := s.procState()
	p.view.CgroupFrozen = p.group != nil && p.group.frozen && (state == checks.ProcAlive || state == checks.ProcStopped)
	if p.view.CgroupFrozen {
		return checks.ProcStopped
	}
	if s.state == 'D' {
		p.groupAt = 0 // as a frozen process of v1 looks: it may have been moved
	}
	return state
}

// closeGroups lets go of all groups.
func (o *Observer) closeGroups() {
	for _, g := range o.groups {
		g.close()
	}
	o.groups = nil
	for _, t := range o.targets {
		t.oom.close()
		t.oomOf = ""
	}
}
