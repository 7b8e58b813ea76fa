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
