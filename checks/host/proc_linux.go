package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// procfs reads /proc, or a tree of the same shape under another root. Not safe
// for two goroutines: its buffers are reused.
type procfs struct {
	root string
	path []byte
	buf  []byte
	dir  []byte
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

func (p *procfs) stat(pid int) (stat, error) {
	b, err := p.read(p.join(pid, "/stat"))
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
	return s, nil
}

// exe is the path of the executable, empty if it cannot be read.
func (p *procfs) exe(pid int) string {
	var b [512]byte
	n, err := unix.Readlink(p.join(pid, "/exe"), b[:])
	if err != nil {
		return ""
	}
	return exePath(b[:n])
}

// fdInode is the socket inode behind a descriptor. ok is false if it is none.
func (p *procfs) fdInode(pid, fd int) (inode uint64, ok bool) {
	var b [64]byte
	p.join(pid, "/fd/")
	p.path = appendInt(p.path, fd)
	n, err := unix.Readlink(string(p.path), b[:])
	if err != nil {
		return 0, false
	}
	return parseSocketLink(b[:n])
}

// names calls fn with each entry of a directory that is a number.
func (p *procfs) numbers(path string, fn func(n int)) error {
	fd, err := open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.ReadDirent(fd, p.dir)
		if err == unix.EINTR {
			continue
		}
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
	var tids [16]int
	threads := tids[:0]
	if err := p.numbers(p.join(pid, "/task"), func(n int) { threads = append(threads, n) }); err != nil {
		return into, err
	}
	for _, tid := range threads {
		p.join(pid, "/task/")
		p.path = append(appendInt(p.path, tid), "/children"...)
		b, err := p.read(string(p.path))
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
