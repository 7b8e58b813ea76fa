package host

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// treeMost bounds how many processes below main are looked through for
	// workers by name; chosen: ten times the largest pools we know.
	treeMost = 10_000
	// renamed is how often a process that is not called a worker is looked at
	// again, besides while it is young: servers title their workers after the
	// fork. Chosen.
	renamed = 10 * time.Second
)

// named is whether a process's name is a worker's, as of a moment.
type named struct {
	worker bool
	at     time.Duration
}

// workerPIDs lists those that may be workers of main: its children, or the
// processes of its group or tree.
func (o *Observer) workerPIDs(t *target, main int, into []int) ([]int, error) {
	switch t.cfg.WorkersBy {
	case workersByCgroup:
		dirs := o.workerDirs(t, main)
		if len(dirs) == 0 {
			t.trouble = Trouble{checks.ReasonUnsupported, fmt.Sprintf("main (pid %d) is in no control group of its own: workers cannot be told by it", main)}
			return into, nil
		}
		into = groupPIDs(dirs[0], into)
	case workersByName:
		var err error
		if into, err = o.tree(main, into); err != nil {
			return into, err
		}
		if dirs := o.workerDirs(t, main); len(dirs) > 0 {
			into = groupPIDs(dirs[0], into)
			slices.Sort(into)
			into = slices.Compact(into)
		}
	default:
		return o.kernel.fs.children(main, into)
	}
	return slices.DeleteFunc(into, func(pid int) bool { return pid == main }), nil
}

// workerDirs are the directories of main's group; none in one that strangers
// share (see unitOf), unless it is the one that was declared.
func (o *Observer) workerDirs(t *target, main int) []string {
	switch {
	case t.cfg.Cgroup != "":
		return o.kernel.hierarchies.groupDirs(t.cfg.Cgroup)
	case t.cfg.Unit != "":
		if dirs := o.kernel.hierarchies.unitDirs(t.cfg.Unit); len(dirs) > 0 {
			return dirs
		}
	}
	if unit := o.unitOf(main); unit != "" {
		return o.kernel.hierarchies.groupDirs(unit)
	}
	return nil
}

// tree lists the descendants of a process.
func (o *Observer) tree(main int, into []int) ([]int, error) {
	from := len(into)
	into, err := o.kernel.fs.children(main, into)
	for i := from; i < len(into) && len(into)-from < treeMost && err == nil; i++ {
		if into, err = o.kernel.fs.children(into[i], into); gone(err) {
			err = nil // it ended
		}
	}
	return into, err
}

// isWorker reports whether a process listed by workerPIDs is a worker.
func (o *Observer) isWorker(t *target, s *stat) bool {
	switch t.cfg.WorkersBy {
	case "":
		return s.ppid == t.main.view.PID
	case workersByCgroup:
		return true
	}
	now := o.kernel.now()
	id := ID{s.pid, s.start}
	n, known := t.named[id]
	if known && (n.worker || now-s.born() >= youngAgain && now-n.at < renamed) {
		return n.worker
	}
	if t.named == nil || len(t.named) > treeMost { // those of the dead are let go together
		t.named = map[ID]named{}
	}
	n = named{t.workerName.MatchString(s.comm) || t.workerName.MatchString(strings.Join(o.kernel.fs.arguments(s.pid), " ")), now}
	t.named[id] = n
	return n.worker
}
