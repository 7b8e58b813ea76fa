package host

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// scrape reads what nobody needs but who asks for metrics: no loop does.
type scrape struct {
	mu sync.Mutex // guards the fields below
	fs *procfs
	// used is the greatest CPU time seen of each target under one main. Between
	// the look at main and that at a worker, the worker's share may move from one
	// to the other; a counter must not fall for that.
	used map[string]usage
}

type usage struct {
	main ID
	time time.Duration
}

// Connections returns one entry for our own network namespace and one for each
// other in which a target's main lives. A namespace that cannot be read is left
// out. Any goroutine may call it.
func (o *Observer) Connections() []Connections {
	o.scrape.mu.Lock()
	defer o.scrape.mu.Unlock()
	seen := map[uint64]bool{}
	var all []Connections
	read := func(path, name string) {
		// Every namespace has files of its own, so that their inode tells it, without
		// the rights that a look at /proc/PID/ns wants.
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[st.Ino] {
			return
		}
		b, err := o.scrape.fs.read(path)
		if err != nil {
			return
		}
		n, err := parsePassiveOpens(b)
		if err != nil {
			o.stats.errors.Add(1)
			return
		}
		seen[st.Ino] = true
		all = append(all, Connections{NetNS: name, Accepted: n})
	}
	read(o.scrape.fs.root+"/self/net/snmp", ownNetNS)
	for _, name := range o.Targets() {
		s, ok := o.Snapshot(name)
		if !ok || s.Main.Status != MainAlive {
			continue
		}
		label := name
		if declared := o.byName[name].cfg.NetNS; declared != "" {
			label = declared
		}
		read(o.scrape.fs.join(s.Main.Process.PID, "/net/snmp"), label)
	}
	return all
}

// Targets returns the names of the targets, sorted.
func (o *Observer) Targets() []string {
	all := make([]string, 0, len(o.byName))
	for name := range o.byName {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// CPU returns the CPU time, user and system, that a target's main, its workers
// and all children they have waited for have used since main was born; ok is
// false while main is not alive or may not be read. It falls only when main is
// another one. Any goroutine may call it.
func (o *Observer) CPU(target string) (used time.Duration, ok bool) {
	s, there := o.Snapshot(target)
	if !there || s.Main.Status != MainAlive {
		return 0, false
	}
	o.scrape.mu.Lock()
	defer o.scrape.mu.Unlock()
	main, ok := o.cpuOf(s.Main.Process.ID)
	if !ok {
		return 0, false
	}
	used = main
	for _, w := range s.Workers {
		// One that ended meanwhile is in main's account at the next reading.
		worker, _ := o.cpuOf(w.ID)
		used += worker
	}
	if last := o.scrape.used[target]; last.main == s.Main.Process.ID {
		used = max(used, last.time)
	}
	o.scrape.used[target] = usage{s.Main.Process.ID, used}
	return used, true
}

func (o *Observer) cpuOf(id ID) (time.Duration, bool) {
	s, err := o.scrape.fs.stat(id.PID)
	if err != nil || s.start != id.StartTicks {
		return 0, false
	}
	return s.utime + s.stime + s.childTime, true
}
