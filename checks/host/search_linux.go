package host

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// searchShare bounds what a search of all of /proc for a lost main costs, as
	// walkShare does; searchPause is the longest pause. Chosen: 5 % of a core, and
	// a main that is back is found within a second or so.
	searchShare = 20
	searchPause = time.Second
	// lookAgain is when a process that was not main is asked again what it runs,
	// for it may have become another program; youngAgain is the age below which
	// it is asked each time. Both chosen: wrappers start servers in a second or two,
	// and one that takes longer must be found well within the restart grace of 10 s.
	lookAgain  = 3 * time.Second
	youngAgain = 5 * time.Second
	// groupDepth is how deep below a unit's control group processes are looked
	// for; chosen: container managers nest two or three.
	groupDepth = 6
)

// mainByGroup finds main in a control group.
func (o *Observer) mainByGroup(t *target, where func(hierarchies) []string, name string, alive bool, now time.Duration) {
	if o.keepMain(t, alive, now) {
		return
	}
	dirs := where(o.kernel.hierarchies)
	if len(dirs) == 0 {
		t.missing(false, fmt.Sprintf("%s has no control group here: it does not run", name))
		return
	}
	var found []stat
	for _, dir := range dirs {
		for _, pid := range groupPIDs(dir, nil) {
			if s, err := o.kernel.fs.stat(pid); err == nil && s.running() {
				found = append(found, s)
			}
		}
		if able := o.able(t, found); len(able) > 0 {
			s := o.topmost(able)
			o.take(t, &s, now)
			return
		}
	}
	if len(found) > 0 {
		t.missing(false, fmt.Sprintf("only workers are left in %s, whose main process has ended", name))
		return
	}
	t.missing(false, fmt.Sprintf("no process runs in %s", name))
}

// groupDirs are the directories of a control group, of the hierarchy that tells
// most first.
func (h hierarchies) groupDirs(group string) (dirs []string) {
	names := []string{"", "name=systemd", "pids", "cpuacct", "memory"}
	for _, n := range slices.Sorted(maps.Keys(h)) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range names {
		dir, ok := h.dir(n, group)
		if ok && !slices.Contains(dirs, dir) && isDir(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// unitDirs are the directories of a systemd unit: in system.slice, or in a slice
// of its own up to three deep (systemd.slice(5)).
func (h hierarchies) unitDirs(unit string) (dirs []string) {
	for _, n := range []string{"", "name=systemd"} {
		root, ok := h.dir(n, "/")
		if !ok {
			continue
		}
		for _, slices := range []string{"*.slice", "*.slice/*.slice", "*.slice/*.slice/*.slice"} {
			found, _ := filepath.Glob(root + "/" + slices + "/" + globbed(unit)) // the pattern is ours
			dirs = append(dirs, found...)
		}
	}
	return dirs
}

// globbed is a name as a pattern that matches it alone.
func globbed(name string) string {
	return strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[").Replace(name)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// groupPIDs are the processes of a control group and of those below it. A group
// that goes away meanwhile, or holds threads alone, has none.
func groupPIDs(dir string, into []int) []int {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if strings.Count(path[len(dir):], "/") > groupDepth {
			return fs.SkipDir
		}
		if b, err := os.ReadFile(path + "/cgroup.procs"); err == nil {
			into = parseChildren(b, into) // the same: pids and blanks
		}
		return nil
	})
	return into
}

// running reports whether a process is neither a zombie nor gone.
func (s *stat) running() bool {
	st := s.procState()
	return st != checks.ProcZombie && st != checks.ProcGone
}

// mainByProgram finds main by its executable and command line.
func (o *Observer) mainByProgram(t *target, alive bool, now time.Duration) {
	if o.keepMain(t, alive, now) {
		return
	}
	what := "the executable " + t.cfg.Exe
	if t.cfg.Exe == "" {
		what = fmt.Sprintf("a command line that matches %q", t.cfg.Cmdline)
	}
	if now < t.searchAt {
		t.trouble = t.scanTrouble
		t.missing(false, t.why)
		return
	}
	began := o.kernel.now()
	found, refused, err := o.search(t, now)
	now = o.kernel.now()
	t.searchAt = now + min(searchShare*(now-began), searchPause)
	t.scanTrouble = Trouble{}
	able := o.able(t, found)
	switch {
	case err != nil:
		t.blame(err)
		t.scanTrouble = t.trouble
	case len(able) > 0:
		s := o.topmost(able)
		o.take(t, &s, now)
	case len(found) > 0:
		t.missing(false, "only workers run "+what+": their main process has ended")
	case refused > 0:
		t.scanTrouble = Trouble{checks.ReasonNoPermission, fmt.Sprintf("whether a process runs %s may not be read: the agent needs CAP_SYS_PTRACE", what)}
		t.trouble = t.scanTrouble
		t.missing(false, t.trouble.Detail)
	default:
		t.missing(false, "no process runs "+what)
	}
}

// passed is a process that a search did not take.
type passed struct{ first, last time.Duration }

// search walks /proc for the processes that run the target's program. refused
// counts those that may, by their name, but do not let us see.
func (o *Observer) search(t *target, now time.Duration) (found []stat, refused int, err error) {
	var pids []int
	if err := o.kernel.fs.numbers(o.kernel.fs.root, func(n int) { pids = append(pids, n) }); err != nil {
		return nil, 0, fmt.Errorf("walk %s: %w", o.kernel.fs.root, err)
	}
	seen := make(map[int]passed, len(pids))
	exe := t.cfg.Exe
	if real, err := filepath.EvalSymlinks(exe); err == nil && exe != "" { // of nothing it is "."
		exe = real
	}
	for _, pid := range pids {
		was, known := t.passed[pid]
		if known && now-was.last < lookAgain && now-was.first >= youngAgain {
			seen[pid] = was
			continue
		}
		if !known {
			was.first = now
		}
		was.last = now
		s, match, hidden := o.runs(t, pid, exe)
		switch {
		case match && (o.kernel.now()-s.born() >= settled || t.main == nil):
			found = append(found, s)
		case match: // "nginx -t" is no main: it is gone before it is settled
		case hidden:
			refused++
		default:
			seen[pid] = was
		}
	}
	t.passed = seen
	return found, refused, nil
}

// runs reports whether a process runs the target's program; hidden, that it may
// and does not let us see. Ourselves and those who started us are never meant,
// though their command lines may hold the expression.
func (o *Observer) runs(t *target, pid int, exe string) (s stat, match, hidden bool) {
	fs := o.kernel.fs
	if exe != "" {
		got := fs.exe(pid)
		if got == "" {
			s, err := fs.stat(pid)
			// Names are cut to 15 bytes (TASK_COMM_LEN); a kernel thread has no code.
			base := filepath.Base(exe)
			return s, false, err == nil && s.running() && s.comm == base[:min(15, len(base))]
		}
		if got != exe {
			return s, false, false
		}
	}
	if t.cmdline != nil {
		if args := fs.arguments(pid); args == nil || !t.cmdline.MatchString(strings.Join(args, " ")) {
			return s, false, false
		}
	}
	s, err := fs.stat(pid)
	if err != nil || !s.running() {
		return s, false, false
	}
	if o.kernel.pids && (pid == os.Getpid() || t.cmdline != nil && o.ancestor(os.Getpid(), func(p int) bool { return p == pid && p != 1 })) {
		return s, false, false
	}
	return s, true, false
}
