package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

// namesDir is where ip-netns(8) keeps namespaces by name.
const namesDir = "/run/netns"

// leftFor is how long a namespace stays open after the last process of its
// target is gone: our socket keeps it alive. Chosen: JUDGING's restart grace.
const leftFor = 10 * time.Second

// space is a network namespace other than ours, with a sock_diag socket that was
// opened inside it once and works from everywhere since. Owned by the run
// goroutine.
type space struct {
	ino  uint64 // of the namespace's file: its identity
	diag *diag

	asked   bool // in this dump
	sockets []socket
	err     error
}

// where is a target's namespace: ours if the zero value.
type where struct {
	space *space
	fault error // why it is not known or cannot be entered
	// veiled: which one it is may not be read. Ours is looked at, and what is
	// there counts; what is not there says nothing.
	veiled  bool
	left    bool          // it was given up, with the last process of the target
	at      time.Duration // when it was looked for
	main    *proc         // whose it was then
	livedAt time.Duration // when a process of the target was last alive
}

// lookSpace finds out in which network namespace the target's listeners are:
// the declared one, else main's.
func (o *Observer) lookSpace(t *target, now time.Duration) {
	if !o.kernel.pids || o.ownSpace == 0 {
		return
	}
	w := &t.where
	alive := t.status == MainAlive || len(t.kids) > 0
	if alive {
		w.livedAt = now
	}
	path := t.cfg.NetNS
	switch {
	case path == "" && alive && t.main != nil:
		path = o.kernel.fs.join(t.main.view.PID, "/ns/net")
	case path == "":
		if w.space != nil && now-w.livedAt >= leftFor {
			w.space, w.left = nil, true
			t.inside.Store(0)
			o.closeSpaces()
		}
		return
	case !filepath.IsAbs(path):
		path = namesDir + "/" + path
	}
	if w.at != 0 && now-w.at < regroup && t.main == w.main {
		return
	}
	w.at, w.main = now, t.main
	o.enterSpace(t, path)
}

// enterSpace makes a namespace the target's.
func (o *Observer) enterSpace(t *target, path string) {
	w := &t.where
	was, veiled, faulty := w.space, w.veiled, w.fault != nil
	defer func() {
		if was != w.space || veiled != w.veiled || faulty != (w.fault != nil) {
			t.elsewhere()
		}
	}()
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	w.fault, w.veiled = nil, false
	switch {
	case err != nil && t.cfg.NetNS == "" && denied(err):
		w.veiled = true
		return
	case gone(err) && t.cfg.NetNS == "":
		return // main ended just now
	case gone(err) && t.status == MainAlive && w.space != nil:
		return // only its name is gone: its processes live on in it
	case gone(err) && t.status == MainAlive:
		w.fault = fmt.Errorf("network namespace %s is not there, though main runs: without netns it is looked for where main is", path)
	case gone(err):
		w.space, w.left = nil, true // nobody listens in a namespace that is not there
	case err != nil:
		w.fault = fmt.Errorf("look for network namespace %s: %w", path, err)
	case st.Ino == o.ownSpace:
		w.space, w.left = nil, false
	case w.space == nil || w.space.ino != st.Ino:
		w.space, w.fault = o.openSpace(st.Ino, path)
		w.left = false
	}
	t.inside.Store(0)
	if w.space != nil {
		t.inside.Store(w.space.ino)
	}
	o.closeSpaces()
}

// elsewhere forgets what was seen of the listeners in another namespace.
func (t *target) elsewhere() {
	for _, l := range t.listeners {
		*l = listener{Listener: Listener{Addr: l.Addr, Path: l.Path}}
	}
	t.version++
	t.inodes = t.interest()
	t.stale = true
}

// openSpace opens a namespace, or returns the one that is open.
func (o *Observer) openSpace(ino uint64, path string) (*space, error) {
	if s := o.spaces[ino]; s != nil {
		return s, nil
	}
	ns, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	s := &space{ino: ino}
	var lookup *diag
	err = inSpace(ns, func() (err error) {
		if s.diag, err = openDiag(); err == nil {
			lookup, err = openDiag()
		}
		return err
	})
	if err != nil {
		if s.diag != nil {
			s.diag.close()
		}
		unix.Close(ns)
		o.stats.errors.Add(1)
		return nil, fmt.Errorf("the listeners are in another network namespace, %s: the agent needs CAP_SYS_ADMIN to look there once: %w", path, err)
	}
	s.diag.unix = o.wantsUnix
	o.lookups.add(ino, lookup, ns)
	if o.spaces == nil {
		o.spaces = map[uint64]*space{}
	}
	o.spaces[ino] = s
	return s, nil
}

// closeSpaces closes those that no target is in any more.
func (o *Observer) closeSpaces() {
	used := map[*space]bool{}
	for _, t := range o.targets {
		used[t.where.space] = true
	}
	for ino, s := range o.spaces {
		if !used[s] {
			s.diag.close()
			o.lookups.drop(ino)
			delete(o.spaces, ino)
		}
	}
}

// listening lists the sockets of a target's namespace; ours are those of our
// own. What it returns is valid until the next dump.
func (w *where) listening(t *target, ours []socket, err error) ([]socket, error) {
	switch {
	case w.fault != nil:
		return nil, w.fault
	case w.left:
		return nil, nil
	case w.space != nil:
		s := w.space
		if !s.asked {
			s.asked = true
			s.sockets, s.err = s.diag.listening()
			sortByPort(s.sockets)
		}
		return s.sockets, s.err
	case w.veiled && err == nil && !t.anyListens(ours):
		return nil, fmt.Errorf("the network namespace of pid %d may not be read: the agent needs CAP_SYS_PTRACE: %w", t.main.view.PID, unix.EACCES)
	}
	return ours, err
}

// anyListens reports whether one of the target's listeners is among the sockets,
// or was ever seen.
func (t *target) anyListens(sockets []socket) bool {
	for _, l := range t.listeners {
		if l.EverListening || len(l.matching(sockets, nil)) > 0 {
			return true
		}
	}
	return len(t.listeners) == 0
}

// inSpace calls f on a thread that is inside a network namespace. The thread is
// thrown away if it cannot come back.
func inSpace(ns int, f func() error) error {
	type outcome struct {
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		defer func() { done <- out }()
		runtime.LockOSThread()
		home, err := open("/proc/thread-self/ns/net", unix.O_RDONLY)
		if err != nil {
			runtime.UnlockOSThread()
			out.err = fmt.Errorf("open our own network namespace: %w", err)
			return
		}
		defer unix.Close(home)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			out.err = fmt.Errorf("enter network namespace: %w", err)
			return
		}
		func() {
			defer func() { out.panicked = recover() }()
			out.err = f()
		}()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		} // else it ends with this goroutine, still locked to it
	}()
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	return out.err
}

// errNoTarget is for a name that no target has.
var errNoTarget = errors.New("no such target")

// InNamespace calls f on a thread that is inside the network namespace of the
// target's listeners, so that sockets f opens itself are of it (those opened by
// goroutines that f starts are not). In our own namespace f is simply called.
// Safe from any goroutine.
func (o *Observer) InNamespace(target string, f func() error) error {
	t := o.byName[target]
	if t == nil {
		return fmt.Errorf("%q: %w", target, errNoTarget)
	}
	ino := t.inside.Load()
	if ino == 0 {
		return f()
	}
	ns, err := o.lookups.namespace(ino)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	return inSpace(ns, f)
}

// spaceTrouble is why a dump could not be made, in the snapshot's words.
func spaceTrouble(err error) Trouble {
	switch {
	case err == nil:
		return Trouble{}
	case denied(err):
		detail, _, _ := strings.Cut(err.Error(), ": "+unix.EPERM.Error())
		detail, _, _ = strings.Cut(detail, ": "+unix.EACCES.Error())
		return Trouble{checks.ReasonNoPermission, detail}
	}
	return Trouble{checks.ReasonOwnLimit, err.Error()}
}
