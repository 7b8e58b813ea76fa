package host

import (
	"bytes"
	"errors"
	"strconv"
	"time"
)

// sched is /proc/PID/schedstat: time on a CPU, time ready and not given one
// (Documentation/scheduler/sched-stats.rst).
type sched struct{ ran, waited time.Duration }

var errBadSched = errors.New("malformed schedstat")

// parseSched reads a schedstat of a process or thread.
func parseSched(b []byte) (sched, error) {
	ran, rest := word(b)
	waited, rest := word(rest)
	slices, _ := word(rest)
	r, ok := parseUint(ran)
	w, ok2 := parseUint(waited)
	_, ok3 := parseUint(slices)
	if !ok || !ok2 || !ok3 || r >= 1<<63 || w >= 1<<63 {
		return sched{}, errBadSched
	}
	return sched{time.Duration(r), time.Duration(w)}, nil
}

// word splits the first word off.
func word(b []byte) (first, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	n := bytes.IndexAny(b, " \t\n")
	if n < 0 {
		return b, nil
	}
	return b[:n], b[n:]
}

// status is what we need of /proc/PID/status (proc_pid_status(5)).
type status struct {
	tracer    int    // 0 if none, or if it is in another pid namespace
	voluntary uint64 // context switches the process asked for
}

var errBadStatus = errors.New("malformed /proc/PID/status")

// parseStatus reads a status of a process or thread. A kernel that lacks one of
// the lines leaves it 0.
func parseStatus(b []byte) (s status, err error) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue // a name may hold anything but a newline
		}
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "TracerPid":
			v, ok := parseUint(value)
			if !ok || v > maxPID {
				return status{}, errBadStatus
			}
			s.tracer = int(v)
		case "voluntary_ctxt_switches":
			if s.voluntary, ok = parseUint(value); !ok {
				return status{}, errBadStatus
			}
		}
	}
	return s, nil
}

// parseFDLimit reads the soft limit of open files from /proc/PID/limits; ok is
// false if it is not there. Unlimited is the kernel's greatest number
// (sysctl fs.nr_open cannot exceed 2^31).
func parseFDLimit(b []byte) (limit int, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		value, found := bytes.CutPrefix(line, []byte("Max open files"))
		if !found {
			continue
		}
		soft, _ := word(value)
		if string(soft) == "unlimited" {
			return 1<<31 - 1, true
		}
		v, ok := parseUint(soft)
		return int(min(v, 1<<31-1)), ok
	}
	return 0, false
}

// titleBytes is how much of a command line a Title holds at most.
const titleBytes = 128

// parseTitle makes a Title of /proc/PID/cmdline: arguments end with a zero byte, and
// a server that writes its state there leaves more of them behind.
func parseTitle(b []byte) string {
	b = bytes.TrimRight(b, "\x00 ")
	if len(b) > titleBytes {
		b = b[:titleBytes]
	}
	out := make([]byte, 0, titleBytes)
	for _, c := range b {
		if c < ' ' || c == 0x7f { // the separators, and what would break a line
			c = ' '
		}
		out = append(out, c)
	}
	return string(bytes.ToValidUTF8(bytes.TrimRight(out, " "), nil))
}

// parsePressure reads "some avg10" of a pressure file, as a share of 1
// (Documentation/accounting/psi.rst).
func parsePressure(b []byte) (some float64, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		value, found := bytes.CutPrefix(line, []byte("some avg10="))
		if !found {
			continue
		}
		number, _ := word(value)
		v, err := strconv.ParseFloat(string(number), 64)
		if err != nil || !(v >= 0 && v <= 100) { // NaN is in no range
			return 0, false
		}
		return v / 100, true
	}
	return 0, false
}

// parseCPUList counts the CPUs of a list such as "0-3,8" (cpulists of
// /sys/devices/system/cpu/, Documentation/admin-guide/cputopology.rst).
func parseCPUList(b []byte) (n int, ok bool) {
	const most = 1 << 16 // CONFIG_NR_CPUS is 8192 at most
	b = bytes.TrimSpace(b)
	for part := range bytes.SplitSeq(b, []byte{','}) {
		from, to, isRange := bytes.Cut(part, []byte{'-'})
		first, ok := parseUint(from)
		last := first
		if isRange && ok {
			last, ok = parseUint(to)
		}
		if !ok || last < first || last >= most {
			return 0, false
		}
		n += int(last - first + 1)
	}
	return n, true
}
