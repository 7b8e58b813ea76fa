package host

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// sched is the schedstat of a process: of its main thread.
func (p *procfs) sched(pid int) (sched, error) {
	b, err := p.file(pid, "/schedstat")
	if err != nil {
		return sched{}, err
	}
	return parseSched(b)
}

// threadPath is pathTo for a thread.
func (p *procfs) threadPath(pid, tid int, rest string) []byte {
	p.pathTo(pid, "/task/")
	p.path = append(append(appendInt(p.path[:len(p.path)-1], tid), rest...), 0)
	return p.path
}

func (p *procfs) threadSched(pid, tid int) (sched, error) {
	b, err := p.readNow(p.threadPath(pid, tid, "/schedstat"))
	if err != nil {
		return sched{}, err
	}
	return parseSched(b)
}

// threadDetail fills in the rest of a thread's counters and tells whether it
// runs, or waits to.
func (p *procfs) threadDetail(pid int, t *Thread) (running bool, err error) {
	b, err := p.readNow(p.threadPath(pid, t.TID, "/stat"))
	if err != nil {
		return false, err
	}
	st, err := parseStat(b)
	if err != nil {
		return false, err
	}
	if b, err = p.readNow(p.threadPath(pid, t.TID, "/status")); err != nil {
		return false, err
	}
	s, err := parseStatus(b)
	if err != nil {
		return false, err
	}
	t.UTime, t.STime, t.Voluntary = st.utime, st.stime, s.voluntary
	return st.state == 'R', nil
}

// title is the command line in one line, empty if it may not be read.
func (p *procfs) title(pid int) string {
	b, err := p.read(p.join(pid, "/cmdline"))
	if err != nil {
		return ""
	}
	return parseTitle(b)
}

// countFDs is how many descriptors a process has open; ok is false on kernels
// that do not say (before 6.2 the size of the directory is 0).
func (p *procfs) countFDs(pid int) (n int, ok bool) {
	size, err := sizeNow(p.pathTo(pid, "/fd"))
	if err != nil || size <= 0 || p.kept == nil {
		return 0, false // of a tree that is not the kernel's, the size means something else
	}
	return int(size), true
}

// lowestFree is the descriptor number that the process would get next.
func (p *procfs) lowestFree(pid int) (int, error) {
	p.scratch = p.scratch[:0]
	if err := p.numbers(p.join(pid, "/fd"), func(n int) { p.scratch = append(p.scratch, n) }); err != nil {
		return 0, err
	}
	slices.Sort(p.scratch)
	for i, n := range p.scratch {
		if n != i {
			return i, nil
		}
	}
	return len(p.scratch), nil
}

// socketSet is a hash of the sockets of a process: those of its lowest
// linksMost descriptors, and how many it has in all. 0 if they may not be read.
func (p *procfs) socketSet(pid int) uint64 {
	p.scratch = p.scratch[:0]
	if err := p.numbers(p.join(pid, "/fd"), func(n int) { p.scratch = append(p.scratch, n) }); err != nil {
		return 0
	}
	slices.Sort(p.scratch)
	h := fnv.New64a()
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], uint64(len(p.scratch)))
	h.Write(word[:])
	for _, fd := range p.scratch[:min(len(p.scratch), linksMost)] {
		if inode, ok := p.fdInode(pid, fd); ok {
			binary.NativeEndian.PutUint64(word[:], inode)
			h.Write(word[:])
		}
	}
	return max(h.Sum64(), 1)
}
