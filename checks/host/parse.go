package host

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// tick is one clock tick as /proc counts them: USER_HZ is 100 in the kernel's
// interface on every architecture we build for (sysconf(3), _SC_CLK_TCK).
const tick = 10 * time.Millisecond

// maxTicks is 174 years of ticks; a time.Duration holds them.
const maxTicks = 1 << 39

// maxPID is PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h).
const maxPID = 4 << 20

// stat is what we need of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	pid   int
	comm  string
	state byte
	ppid  int
	// utime and stime are the CPU time of all threads (fields 14 and 15), threads
	// how many they are (field 20).
	utime, stime time.Duration
	threads      int
	// reaped sums the counters of waited-for children (fields 11, 13, 16, 17:
	// faults and ticks). It rises whenever main reaps one; its unit means
	// nothing.
	reaped uint64
	// childTime is the CPU time of waited-for children (fields 16 and 17).
	childTime time.Duration
	start     uint64
	// startCode is 1 when we may not see it, and then exitCode is hidden too.
	startCode uint64
	// startStack is where its stack begins: a fork keeps it, an execve(2) draws it
	// anew. 0 when we may not see it.
	startStack uint64
	exitCode   int // wait status; 0 also if hidden
}

// born is the beginning of the tick in which the process was born.
func (s *stat) born() time.Duration { return time.Duration(s.start) * tick }

var errBadStat = errors.New("malformed /proc/PID/stat")

// parseStat reads /proc/PID/stat. The command is in parentheses and may hold
// anything, parentheses and newlines included.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 2 || b[open-1] != ' ' || end < open {
		return stat{}, errBadStat
	}
	pid, ok := parseUint(b[:open-1])
	if !ok || pid == 0 || pid > maxPID {
		return stat{}, errBadStat
	}
	s := stat{pid: int(pid), comm: string(b[open+1 : end])}
	rest := b[end+1:]
	for field := 3; ; field++ {
		rest = bytes.TrimLeft(rest, " ")
		n := bytes.IndexAny(rest, " \n")
		if n < 0 {
			n = len(rest)
		}
		word := rest[:n]
		rest = rest[n:]
		if len(word) == 0 {
			if field <= 22 {
				return stat{}, errBadStat
			}
			return s, nil
		}
		if !s.set(field, word) {
			return stat{}, errBadStat
		}
	}
}

// set stores one field, numbered as in proc_pid_stat(5).
func (s *stat) set(field int, word []byte) bool {
	switch field {
	case 3:
		s.state = word[0]
		return len(word) == 1
	case 4, 11, 13, 14, 15, 20, 22, 26, 28, 52:
		v, ok := parseUint(word)
		if !ok {
			return false
		}
		switch field {
		case 4:
			s.ppid = int(v)
			return v <= maxPID
		case 14:
			s.utime = time.Duration(v) * tick
			return v < maxTicks
		case 15:
			s.stime = time.Duration(v) * tick
			return v < maxTicks
		case 20:
			s.threads = int(v)
			return v <= maxPID
		case 22:
			s.start = v
			return v < maxTicks
		case 26:
			s.startCode = v
		case 28:
			s.startStack = v
		case 52:
			s.exitCode = int(v & 0xffff)
		default:
			s.reaped += v
		}
	case 16, 17: // signed in the kernel's format; never negative in truth
		if v, ok := parseUint(word); ok {
			s.reaped += v
			v = min(v, maxTicks/4) // a sum must fit
			s.childTime += time.Duration(v) * tick
		}
	}
	return true
}

// procState reduces the kernel's state letter.
func (s *stat) procState() checks.ProcState {
	switch s.state {
	case 'Z':
		return checks.ProcZombie
	case 'X', 'x':
		return checks.ProcGone
	case 'T', 't':
		return checks.ProcStopped
	}
	return checks.ProcAlive
}

// parseUint reads decimal digits and nothing else, without allocating.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > (1<<64-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// parseChildren reads /proc/PID/task/TID/children: pids and blanks. What is no
// pid is skipped.
func parseChildren(b []byte, into []int) []int {
	for _, f := range bytes.Fields(b) {
		if v, ok := parseUint(f); ok && v > 0 && v <= maxPID {
			into = append(into, int(v))
		}
	}
	return into
}

var errEmpty = errors.New("is empty")

// parsePIDFile reads a pid file: one number, blanks around it.
func parsePIDFile(b []byte) (int, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return 0, errEmpty
	}
	v, ok := parseUint(b)
	if !ok || v == 0 || v > maxPID {
		return 0, fmt.Errorf("holds %q, not a pid", clip(b, 20))
	}
	return int(v), nil
}

// parseSocketLink reads the target of a /proc/PID/fd link to a socket,
// "socket:[INODE]".
func parseSocketLink(b []byte) (inode uint64, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte("socket:["))
	if !ok || len(rest) == 0 || rest[len(rest)-1] != ']' {
		return 0, false
	}
	return parseUint(rest[:len(rest)-1])
}

// exePath drops what the kernel adds when the file was replaced on disk: an
// upgraded package is no other program.
func exePath(link []byte) string {
	return string(bytes.TrimSuffix(link, []byte(" (deleted)")))
}

func clip(b []byte, n int) string {
	if len(b) > n {
		return string(b[:n]) + "..."
	}
	return string(b)
}

// appendInt is strconv.AppendInt for paths.
func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
