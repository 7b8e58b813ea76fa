//go:build linux

package inject

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptors lists the descriptor numbers of a process, ascending.
func Descriptors(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds, nil
}

// Exhaust lowers a process's soft limit of descriptors to its lowest free
// number, so that it can open none. The process does it itself, which needs no
// right beyond that to trace it (prlimit(2) on another user's would).
func Exhaust(pid int) error {
	fds, err := Descriptors(pid)
	if err != nil {
		return err
	}
	free := 0
	for _, fd := range fds {
		if fd == free {
			free++
		}
	}
	hard, err := hardLimit(pid)
	if err != nil {
		return err
	}
	return limitFiles(pid, uint64(free), hard)
}

// hardLimit is a process's hard limit of descriptors (proc_pid_limits(5)).
func hardLimit(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 1 {
				return strconv.ParseUint(f[1], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("process %d tells no limit of descriptors", pid)
}

// Listeners returns the descriptors of a process that are listening TCP
// sockets. It needs the right to trace the process (pidfd_getfd(2)).
func Listeners(pid int) ([]int, error) {
	var listening []int
	err := eachListener(pid, func(number, _ int) error {
		listening = append(listening, number)
		return nil
	})
	return listening, err
}

// Shut calls shutdown(2) on the listening sockets of a process, which it may
// share with others: nobody listens, every descriptor stays open.
func Shut(pid int) error {
	shut := 0
	err := eachListener(pid, func(_, fd int) error {
		shut++
		return unix.Shutdown(fd, unix.SHUT_RDWR)
	})
	if err == nil && shut == 0 {
		err = fmt.Errorf("process %d: %w", pid, ErrNoListener)
	}
	return err
}

// ErrNoListener says that a process listens on nothing.
var ErrNoListener = errors.New("no listening socket")

// eachListener calls f with the number of each listening TCP socket in the
// process and with a copy of it in ours.
func eachListener(pid int, f func(number, fd int) error) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	fds, err := Descriptors(pid)
	if err != nil {
		return err
	}
	for _, n := range fds {
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			continue // closed meanwhile
		}
		domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err == nil && listening == 1 && (domain == unix.AF_INET || domain == unix.AF_INET6) {
			err = f(n, fd)
		} else {
			err = nil
		}
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}
