package host

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls made ten times a second, without telling the scheduler of
// them: an ordinary call wakes its monitor thread if that sleeps, which then
// polls for a millisecond, and that cost more than the dump itself (README,
// "Decisions"). None of them can block: sock_diag answers inside sendto(2), and
// the others only look.

// sendKernel sends a request to the kernel's end of a netlink socket.
func sendKernel(fd int, request []byte) error {
	to := unix.RawSockaddrNetlink{Family: unix.AF_NETLINK}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&request[0])), uintptr(len(request)),
		0, uintptr(unsafe.Pointer(&to)), unix.SizeofSockaddrNetlink)
	return asError(errno)
}

// receiveNow takes the next datagram, or fails with EAGAIN.
func receiveNow(fd int, into []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), asError(errno)
}

// pollNow returns how many events an epoll has now.
func pollNow(epoll int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	return int(n), asError(errno)
}

// setTimer lets a timerfd expire once, after d.
func setTimer(fd int, d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return asError(errno)
}

// BootTime is now on CLOCK_BOOTTIME: the clock of start ticks, which neither
// stops while the machine sleeps nor jumps when somebody sets the time.
func BootTime() time.Duration {
	var ts unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno) // since Linux 2.6.39; EINVAL is impossible after that
	}
	return time.Duration(ts.Nano())
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// openNow, readNow, closeNow and readlinkNow are for files that the kernel makes
// up about a process without waiting for anybody for long: not for its command
// line, which waits for what the process does to its memory, nor for a file
// system on a disk. path ends with a zero byte.
func openNow(path []byte, flags int) (int, error) {
	at := unix.AT_FDCWD
	for {
		fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])),
			uintptr(flags|unix.O_CLOEXEC|unix.O_NONBLOCK), 0, 0, 0)
		if errno != unix.EINTR {
			return int(fd), asError(errno)
		}
	}
}

func readNow(fd int, into []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)))
		if errno != unix.EINTR {
			return int(n), asError(errno)
		}
	}
}

// readAtStart is pread(2) from 0.
func readAtStart(fd int, into []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), asError(errno)
		}
	}
}

func closeNow(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func readlinkNow(path, into []byte) (int, error) {
	at := unix.AT_FDCWD
	n, _, errno := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])),
		uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)), 0, 0)
	return int(n), asError(errno)
}

// listNow is getdents64(2).
func listNow(fd int, into []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_GETDENTS64, uintptr(fd), uintptr(unsafe.Pointer(&into[0])), uintptr(len(into)))
		if errno != unix.EINTR {
			return int(n), asError(errno)
		}
	}
}

// sizeNow is the size of a file.
func sizeNow(path []byte) (int64, error) {
	var st unix.Statx_t
	at := unix.AT_FDCWD
	_, _, errno := unix.RawSyscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(&path[0])),
		unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, uintptr(unsafe.Pointer(&st)), 0)
	return int64(st.Size), asError(errno)
}
