package host

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wake tells the run goroutine that something happened to a process it knows.
// The process connector's events will arrive the same way.
type wake struct {
	token uint32
	at    time.Duration
}

// watcher waits for exits of processes by their pidfds. add and drop are the
// run goroutine's; wait has a goroutine of its own, which ends with stop.
type watcher struct {
	epoll, event int
	next         uint32
	out          chan wake
	done         sync.WaitGroup
}

func newWatcher() (*watcher, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	w := &watcher{epoll: ep, event: ev, out: make(chan wake, 1024)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(ep)
		unix.Close(ev)
		return nil, fmt.Errorf("watch eventfd: %w", err)
	}
	w.done.Go(w.wait)
	return w, nil
}

// add watches a pidfd and returns the token its wake will carry, never 0.
func (w *watcher) add(pidfd int) (uint32, error) {
	w.next++
	if w.next == 0 {
		w.next++
	}
	// One shot: an exited process stays readable, and once is enough.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(w.next)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &ev); err != nil {
		return 0, fmt.Errorf("watch pidfd: %w", err)
	}
	return w.next, nil
}

func (w *watcher) wait() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return // only when the descriptor is bad, which is ours to close after us
		}
		at := BootTime()
		for _, e := range events[:max(n, 0)] {
			if e.Fd == 0 {
				return
			}
			select {
			case w.out <- wake{token: uint32(e.Fd), at: at}:
			default: // the next sweep, at most a second away, sees it as well
			}
		}
	}
}

// stop ends wait and closes everything but the pidfds.
func (w *watcher) stop() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(w.event, one[:]); err != nil {
		panic(err) // a counter that was never written before cannot be full
	}
	w.done.Wait()
	unix.Close(w.epoll)
	unix.Close(w.event)
}

// pidfdInfo is struct pidfd_info (include/uapi/linux/pidfd.h, 6.13; exit_code
// is filled since 6.15), its first published size.
type pidfdInfo struct {
	mask, cgroup             uint64
	pid, tgid, ppid          uint32
	ruid, rgid, euid, egid   uint32
	suid, sgid, fsuid, fsgid uint32
	exitCode                 int32
}

const (
	pidfdGetInfo  = 0xC040FF0B // _IOWR(PIDFS_IOCTL_MAGIC 0xFF, 11, 64 bytes)
	pidfdInfoExit = 1 << 3
)

// pidfdExit asks for the exit status of a process that was reaped. Kernels
// before 6.15 do not know: unknown.
func pidfdExit(pidfd int) Exit {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.mask&pidfdInfoExit == 0 {
		return Exit{}
	}
	return exitFromStatus(int(info.exitCode))
}
