package host

import (
	"encoding/binary"
	"fmt"
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

// watcher waits for exits of processes by their pidfds. Owned by the run
// goroutine, but for interrupt.
type watcher struct {
	epoll, event int
	next         uint32
	events       []unix.EpollEvent
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
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(ep)
		unix.Close(ev)
		return nil, fmt.Errorf("watch eventfd: %w", err)
	}
	return &watcher{epoll: ep, event: ev, events: make([]unix.EpollEvent, 64)}, nil
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

// wait sleeps until a process exits, interrupt is called, or the time is over,
// and calls note with each exit.
func (w *watcher) wait(atMost time.Duration, note func(wake)) error {
	millis := int((max(atMost, 0) + time.Millisecond - 1) / time.Millisecond)
	n, err := unix.EpollWait(w.epoll, w.events, millis)
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for exits: %w", err)
	}
	at := BootTime()
	for _, e := range w.events[:max(n, 0)] {
		if e.Fd != 0 {
			note(wake{token: uint32(e.Fd), at: at})
		}
	}
	return nil
}

// interrupt ends the present wait and all that follow.
func (w *watcher) interrupt() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(w.event, one[:]); err != nil {
		panic(err) // a counter that was never written before cannot be full
	}
}

// close closes everything but the pidfds.
func (w *watcher) close() {
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
