package host

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"time"
)

// groups are the control groups of one process by hierarchy: "" is the unified
// one (cgroup v2), "name=systemd" systemd's own of v1, others are controllers.
// Paths are those of /proc/PID/cgroup.
type groups map[string]string

// parseCgroups reads /proc/PID/cgroup (cgroups(7)): lines of
// "ID:CONTROLLER[,CONTROLLER...]:PATH". What is malformed is skipped, and so is
// a path outside our view of the tree ("/../x", a cgroup namespace).
func parseCgroups(b []byte) groups {
	g := groups{}
	for line := range bytes.Lines(b) {
		_, rest, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":"))
		controllers, name, ok2 := bytes.Cut(rest, []byte(":"))
		if !ok || !ok2 || len(name) == 0 || name[0] != '/' || bytes.HasPrefix(name, []byte("/..")) {
			continue
		}
		for c := range strings.SplitSeq(string(controllers), ",") {
			g[c] = string(name)
		}
	}
	return g
}

// known is the path that tells most: of the unified hierarchy, systemd's, or
// that of the CPU's accounts, in this order; "/" if the process is in the root of all,
// empty if nothing is known.
func (g groups) known() string {
	best := ""
	for _, hierarchy := range []string{"", "name=systemd", "cpuacct"} {
		switch p, ok := g[hierarchy]; {
		case ok && p != "/":
			return p
		case ok:
			best = p
		}
	}
	return best
}

// unitOf names the systemd unit or the container among a process's groups, as
// the path down to it. Empty in the root, in a slice, in a login session and in
// init.scope: those hold strangers side by side.
func unitOf(g groups) string {
	whole := g.known()
	parts := strings.Split(whole, "/")
	for i, p := range parts {
		switch {
		case strings.HasSuffix(p, ".service") && !strings.HasPrefix(p, "user@"):
			return strings.Join(parts[:i+1], "/")
		case strings.HasSuffix(p, ".scope"):
			if strings.HasPrefix(p, "session-") || p == "init.scope" {
				return ""
			}
			return strings.Join(parts[:i+1], "/")
		}
	}
	if base := path.Base(whole); base == "/" || base == "." || strings.HasSuffix(base, ".slice") || strings.HasPrefix(base, "user@") {
		return ""
	}
	return whole // no systemd's name: a container's
}

// cgroupMount is where one hierarchy is mounted, and which part of it.
type cgroupMount struct{ dir, root string }

// hierarchies are the mounted ones by the names that groups uses.
type hierarchies map[string]cgroupMount

// parseCgroupMounts reads /proc/self/mountinfo (proc_pid_mountinfo(5)). The
// first mount of a hierarchy counts.
func parseCgroupMounts(b []byte) hierarchies {
	h := hierarchies{}
	for line := range bytes.Lines(b) {
		front, back, ok := bytes.Cut(line, []byte(" - "))
		f, kind := bytes.Fields(front), bytes.Fields(back)
		if !ok || len(f) < 5 || len(kind) < 3 {
			continue
		}
		m := cgroupMount{dir: unescape(string(f[4])), root: unescape(string(f[3]))}
		var names []string
		switch string(kind[0]) {
		case "cgroup2":
			names = []string{""}
		case "cgroup": // the controllers are among the superblock's options
			names = strings.Split(string(kind[2]), ",")
		}
		for _, n := range names {
			if _, ok := h[n]; !ok && n != "rw" && n != "ro" {
				h[n] = m
			}
		}
	}
	return h
}

// unescape undoes the octal escapes of mountinfo ("\\040" is a blank).
func unescape(s string) string {
	for i := 0; i+4 <= len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
			s = s[:i] + string([]byte{byte(c)}) + s[i+4:]
		}
	}
	return s
}

// dir is where a group's files are. ok is false if that hierarchy, or that part
// of it, is not mounted.
func (h hierarchies) dir(hierarchy, group string) (dir string, ok bool) {
	m, ok := h[hierarchy]
	if !ok || group == "" {
		return "", false
	}
	if m.root != "/" {
		rest, in := strings.CutPrefix(group, m.root)
		if !in || rest != "" && rest[0] != '/' {
			return "", false
		}
		group = rest
	}
	return path.Join(m.dir, group), true
}

// keyed reads the number of one line "KEY NUMBER" of a cgroup file
// (cgroup.events, memory.events, cpu.stat, memory.oom_control).
func keyed(b []byte, key string) (v uint64, ok bool) {
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(name) == key {
			return parseUint(value)
		}
	}
	return 0, false
}

// parseUsage reads a group's CPU time: the usage_usec line of cpu.stat (cgroup
// v2), or the one number of cpuacct.usage, nanoseconds (v1).
func parseUsage(b []byte) (time.Duration, bool) {
	if usec, ok := keyed(b, "usage_usec"); ok {
		return time.Duration(usec) * time.Microsecond, usec < 1<<53
	}
	nsec, ok := parseUint(bytes.TrimSpace(b))
	return time.Duration(nsec), ok && nsec < 1<<63
}

// most names the group that used most CPU between two readings, from the root
// down: a group instead of the one above it if it used enough of what that did.
// The root, of which all are part, is never named.
func most(now, before map[string]time.Duration, over time.Duration) (group string, share float64) {
	delta := func(g string) time.Duration { return now[g] - before[g] }
	above := "/"
	for {
		best := ""
		for g := range now {
			_, old := before[g]
			if g != "/" && path.Dir(g) == above && old && (best == "" || delta(g) > delta(best) || delta(g) == delta(best) && g < best) {
				best = g
			}
		}
		part := burnerPart
		if above == "/" {
			part = burnerTop
		}
		if best == "" || delta(best) <= 0 || float64(delta(best)) < part*float64(delta(above)) {
			break
		}
		above = best
	}
	if above == "/" || over <= 0 {
		return "", 0
	}
	return above, float64(delta(above)) / float64(over)
}

// burnerPart: a group is named instead of the one above it if it used at least
// so much of what that did, burnerTop below the root. Chosen: half, and less than
// half where what is in no group counts too.
const (
	burnerPart = 0.5
	burnerTop  = 0.25
)
