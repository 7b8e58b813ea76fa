package host

import (
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// burnerEvery is the least time between two readings of all control groups,
	// burnerMost how many are read and burnerDepth how deep. Chosen: they cost up
	// to 30 µs each, and a host has some hundreds at most that matter.
	burnerEvery = 5 * time.Second
	burnerMost  = 512
	burnerDepth = 5
	// burnerPressure and burnerLate are from when on it matters who burns; chosen
	// well below what anybody calls starved, so that a first reading is there by then.
	burnerPressure = 0.1
	burnerLate     = 50 * time.Millisecond
)

// burner finds the control group that uses most of the CPU. Owned by the run
// goroutine.
type burner struct {
	mounts hierarchies
	now    func() time.Duration
	at     time.Duration
	used   map[string]time.Duration // by path, of the last reading
	path   string
	share  float64
	buf    [4096]byte
}

// name returns the group that used most CPU between the last two readings, and
// its share of one core. It reads only while h tells of pressure; empty if there
// is none, or nothing is known.
func (b *burner) name(h HostState) (group string, share float64) {
	if len(b.mounts) == 0 || h.CPUPressure < burnerPressure && h.Late < burnerLate {
		b.used, b.path, b.share = nil, "", 0
		return "", 0
	}
	now := b.now()
	// The second reading comes soon: until then there is nothing to tell.
	if b.used != nil && (now-b.at < time.Second || b.path != "" && now-b.at < burnerEvery) {
		return b.path, b.share
	}
	used := map[string]time.Duration{}
	b.read("/", 0, used)
	if b.used != nil {
		b.path, b.share = most(used, b.used, now-b.at)
	}
	b.used, b.at = used, now
	return b.path, b.share
}

// read notes the CPU time of a group and of those below it.
func (b *burner) read(group string, depth int, into map[string]time.Duration) {
	known := false
	for _, h := range []struct{ hierarchy, file string }{{"", "/cpu.stat"}, {"cpuacct", "/cpuacct.usage"}} {
		dir, ok := b.mounts.dir(h.hierarchy, group)
		if !ok {
			continue
		}
		if used, ok := b.usage(dir + h.file); ok {
			// The same group in two hierarchies: the one that holds its processes.
			into[group] = max(into[group], used)
			known = true
		}
	}
	if !known || depth == burnerDepth {
		return
	}
	for _, h := range []string{"", "cpuacct"} {
		dir, ok := b.mounts.dir(h, group)
		if !ok {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it went away
		}
		for _, e := range entries {
			child := path.Join(group, e.Name())
			if _, done := into[child]; e.IsDir() && !done && len(into) < burnerMost {
				b.read(child, depth+1, into)
			}
		}
	}
}

// usage reads the CPU time of one group: usage_usec of cpu.stat (v2), or
// cpuacct.usage in nanoseconds (v1).
func (b *burner) usage(file string) (time.Duration, bool) {
	fd, err := open(file, unix.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	text, ok := groupFile{fd}.read(b.buf[:])
	if !ok {
		return 0, false
	}
	return parseUsage(text)
}
