package host

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wake tells the run goroutine that something happened to a process it knows or,
// under connectorToken, that the process connector has something to tell.
type wake struct {
	token uint32
	at    time.Duration
}

// watcher waits for exits of processes by their pidfds. Owned by the run
// goroutine, but for interrupt.
type watcher struct {
	epoll, event, timer int
	// file is epoll as Go's own poller sees it, and timer bounds a wait. A thread
	// that blocks in epoll_wait(2), and a Go timer as well, wake the scheduler's
	// monitor at every turn, which cost more than the dump (README, 2026-11-30).
	file   *os.File
	ready  syscall.RawConn
	next   uint32
	events []unix.EpollEvent
}

func newWatcher() (w *watcher, err error) {
	w = &watcher{epoll: -1, event: -1, timer: -1, events: make([]unix.EpollEvent, 64)}
	defer func() {
		if err != nil {
			w.close()
			w = nil
		}
	}()
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return w, fmt.Errorf("create epoll: %w", err)
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return w, fmt.Errorf("create eventfd: %w", err)
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return w, fmt.Errorf("create timerfd: %w", err)
	}
	// Token 0 is neither's: both only end a wait. Setting the timer anew clears
	// its last expiry, so nobody reads it.
	for fd, events := range map[int]uint32{w.event: unix.EPOLLIN, w.timer: unix.EPOLLIN | unix.EPOLLET} {
		if err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events}); err != nil {
			return w, fmt.Errorf("watch descriptor %d: %w", fd, err)
		}
	}
	if err = unix.SetNonblock(w.epoll, true); err != nil {
		return w, fmt.Errorf("poll epoll: %w", err)
	}
	w.file = os.NewFile(uintptr(w.epoll), "epoll")
	if w.ready, err = w.file.SyscallConn(); err != nil {
		return w, fmt.Errorf("poll epoll: %w", err)
	}
	return w, nil
}

// add watches a pidfd and returns the token its wake will carry, never 0.
func (w *watcher) add(pidfd int) (uint32, error) {
	w.next++
	if w.next == connectorToken {
		w.next = 1
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
	n, err := w.poll()
	if n == 0 && err == nil && atMost > 0 {
		if err := setTimer(w.timer, atMost); err != nil {
			return fmt.Errorf("wait for exits: %w", err)
		}
		if waitErr := w.ready.Read(func(uintptr) bool {
			n, err = w.poll()
			return n > 0 || err != nil
		}); waitErr != nil {
			err = waitErr
		}
	}
	if err != nil {
		return fmt.Errorf("wait for exits: %w", err)
	}
	at := BootTime()
	for _, e := range w.events[:n] {
		if e.Fd != 0 {
			note(wake{token: uint32(e.Fd), at: at})
		}
	}
	return nil
}

// poll returns how many events are there now, without waiting.
func (w *watcher) poll() (int, error) {
	n, err := pollNow(w.epoll, w.events)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, err
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
	if w.file != nil {
		_ = w.file.Close() // epoll
	} else if w.epoll >= 0 {
		unix.Close(w.epoll)
	}
	for _, fd := range []int{w.event, w.timer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
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
