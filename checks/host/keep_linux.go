package host

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// keptMost bounds the files kept open, and the pidfds as well; keptShare is which
// part of the descriptors we may have each of them gets. A process has two files
// and a pidfd. Chosen: 8,000 processes of targets; a third of the limit is left to
// everything else.
const (
	keptMost  = 16384
	keptShare = 3
)

// keptFiles are a process's files under /proc that stay open: reading one again
// costs a third of opening it for each look (README, "Measured"). They name the
// process and not its number: when it was reaped they read ESRCH, even if the
// pid was given away.
type keptFiles struct {
	stat, sched, children int // -1 if it is not open
	users                 int // targets may share a process
	threads               int // as of the last stat
}

// keep lets the files of a process stay open from their next reading on.
func (p *procfs) keep(pid int) {
	if p.kept == nil {
		return
	}
	k := p.kept[pid]
	if k == nil {
		k = &keptFiles{stat: -1, sched: -1, children: -1}
		p.kept[pid] = k
	}
	k.users++
}

// release undoes one keep.
func (p *procfs) release(pid int) {
	k := p.kept[pid]
	if k == nil {
		return
	}
	if k.users--; k.users == 0 {
		p.shut(k)
		delete(p.kept, pid)
	}
}

// shut closes the files. They are opened anew when they are read again.
func (p *procfs) shut(k *keptFiles) {
	for _, fd := range []*int{&k.stat, &k.sched, &k.children} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
			p.open--
		}
	}
}

// readKept reads a file of a process through its kept descriptor, which is
// opened if there is room. used is false if it has to be read by its path. What
// it returns is valid until the next read.
func (p *procfs) readKept(k *keptFiles, fd *int, pid int, name string) (b []byte, used bool) {
	if *fd < 0 {
		if p.open >= p.openMost {
			return nil, false
		}
		n, err := openNow(p.pathTo(pid, name), unix.O_RDONLY)
		if err != nil {
			return nil, false
		}
		*fd = n
		p.open++
	}
	n, err := readAtStart(*fd, p.buf)
	if err != nil || n == len(p.buf) { // reaped, or larger than any we expect
		if err != nil {
			p.shut(k)
		}
		return nil, false
	}
	return p.buf[:n], true
}

// roomToKeep raises the limit of descriptors as far as we may and returns how
// many files may stay open, and what is to be said if that is few.
func roomToKeep(processes int) (most int, say string) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Sprintf("read the limit of descriptors: %v", err)
	}
	want := uint64(keptShare * min(keptMost, 2*processes))
	if r.Cur < want {
		raised := unix.Rlimit{Cur: max(r.Max, want), Max: max(r.Max, want)}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) != nil { // beyond the hard one: needs CAP_SYS_RESOURCE
			raised = unix.Rlimit{Cur: r.Max, Max: r.Max}
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) // if not: what we have
		}
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	}
	most = int(min(r.Cur, math.MaxInt32)) / keptShare
	if r.Cur < want {
		say = fmt.Sprintf("descriptors are limited to %d, %d would be better: files of /proc beyond them are opened for each look, which costs more CPU", r.Cur, want)
	}
	return min(most, keptMost), say
}

// keepFiles decides how many files of /proc may stay open.
func (o *Observer) keepFiles() {
	const each = 16 // processes of a target; chosen: more than most have
	most, say := roomToKeep(each * len(o.targets))
	o.kernel.fs.openMost = most
	if say != "" {
		o.log.Info(say)
	}
}
