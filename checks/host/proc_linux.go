package host

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// procfs reads /proc, or a tree of the same shape under another root. Not safe
// for two goroutines: its buffers are reused.
type procfs struct {
	root string
	path []byte
	buf  []byte
	dir  []byte
	// scratch holds the numbers of one directory at a time.
	scratch []int
	// kept are files that stay open, by pid; nil keeps none. open counts them,
	// openMost is how many they may be.
	kept           map[int]*keptFiles
	open, openMost int
}

func newProcfs(root string) *procfs {
	return &procfs{root: root, buf: make([]byte, 4096), dir: make([]byte, 8192)}
}

// gone reports that the process (or thread, or descriptor) was not there.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// denied reports that we may not look.
func denied(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// join builds root/pid/rest, valid until the next call.
func (p *procfs) join(pid int, rest string) string {
	p.path = append(p.path[:0], p.root...)
	p.path = append(p.path, '/')
	p.path = appendInt(p.path, pid)
	p.path = append(p.path, rest...)
	return string(p.path)
}

// pathTo is join for the calls of syscall_linux.go: it ends with a zero byte.
func (p *procfs) pathTo(pid int, rest string) []byte {
	p.path = append(p.path[:0], p.root...)
	p.path = append(p.path, '/')
	p.path = appendInt(p.path, pid)
	p.path = append(append(p.path, rest...), 0)
	return p.path
}

// read returns a whole file, valid until the next read.
func (p *procfs) read(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(p.buf) {
			p.buf = append(p.buf, make([]byte, len(p.buf))...)
		}
		m, err := unix.Read(fd, p.buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m <= 0 {
			return p.buf[:n], nil
		}
		n += m
	}
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// file reads a file of a process, kept open if it is one of those, valid until
// the next read.
func (p *procfs) file(pid int, name string) ([]byte, error) {
	if k := p.kept[pid]; k != nil {
		fd := &k.stat
		if name == "/schedstat" {
			fd = &k.sched
		}
		if b, used := p.readKept(k, fd, pid, name); used {
			return b, nil
		}
	}
	return p.readNow(p.pathTo(pid, name))
}

// readNow is read for the files that openNow is for.
func (p *procfs) readNow(path []byte) ([]byte, error) {
	fd, err := openNow(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeNow(fd)
	for n := 0; ; {
		if n == len(p.buf) {
			p.buf = append(p.buf, make([]byte, len(p.buf))...)
		}
		m, err := readNow(fd, p.buf[n:])
		switch {
		case err != nil:
			return nil, err
		case m == 0:
			return p.buf[:n], nil
		}
		n += m
	}
}

func (p *procfs) stat(pid int) (stat, error) {
	b, err := p.file(pid, "/stat")
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return stat{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	if s.pid != pid {
		return stat{}, fmt.Errorf("pid %d: %w", pid, errBadStat)
	}
	if k := p.kept[pid]; k != nil {
		k.threads = s.threads
	}
	return s, nil
}

// exe is the path of the executable, empty if it cannot be read.
func (p *procfs) exe(pid int) string {
	var b [512]byte
	n, err := readlinkNow(p.pathTo(pid, "/exe"), b[:])
	if err != nil {
		return ""
	}
	return exePath(b[:n])
}

// fdInode is the socket inode behind a descriptor. ok is false if it is none.
func (p *procfs) fdInode(pid, fd int) (inode uint64, ok bool) {
	var b [64]byte
	p.pathTo(pid, "/fd/")
	p.path = append(appendInt(p.path[:len(p.path)-1], fd), 0)
	n, err := readlinkNow(p.path, b[:])
	if err != nil {
		return 0, false
	}
	return parseSocketLink(b[:n])
}

// names calls fn with each entry of a directory that is a number.
func (p *procfs) numbers(path string, fn func(n int)) error {
	fd, err := openNow(append([]byte(path), 0), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer closeNow(fd)
	for {
		n, err := listNow(fd, p.dir)
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		for b := p.dir[:n]; len(b) > 0; {
			var name []byte
			if name, b = dirent(b); name == nil {
				break
			}
			if v, ok := parseUint(name); ok && v < 1<<31 {
				fn(int(v))
			}
		}
	}
}

// children are main's own: those of each of its threads.
func (p *procfs) children(pid int, into []int) ([]int, error) {
	if k := p.kept[pid]; k != nil && k.threads == 1 {
		if b, used := p.readKept(k, &k.children, pid, "/task/"+strconv.Itoa(pid)+"/children"); used {
			return parseChildren(b, into), nil
		}
	}
	var tids [16]int
	threads := tids[:0]
	if err := p.numbers(p.join(pid, "/task"), func(n int) { threads = append(threads, n) }); err != nil {
		return into, err
	}
	for _, tid := range threads {
		b, err := p.readNow(p.threadPath(pid, tid, "/children"))
		switch {
		case err == nil:
			into = parseChildren(b, into)
		case tid == pid && gone(err):
			// The process still has a task directory, but no list: either it
			// went away this moment, or the kernel lacks CONFIG_PROC_CHILDREN.
			if _, serr := p.stat(pid); serr != nil {
				return into, serr
			}
			return p.childrenByParent(pid, into[:0])
		case !gone(err): // a thread may end at any time
			return into, err
		}
	}
	return into, nil
}

// childrenByParent finds children without CONFIG_PROC_CHILDREN, from the
// parent of every process there is.
func (p *procfs) childrenByParent(pid int, into []int) ([]int, error) {
	var pids []int
	if err := p.numbers(p.root, func(n int) { pids = append(pids, n) }); err != nil {
		return into, err
	}
	for _, n := range pids {
		if s, err := p.stat(n); err == nil && s.ppid == pid {
			into = append(into, n)
		}
	}
	return into, nil
}
