package heartbeat

import (
	"fmt"
	"net"
	"syscall"
)

// passCredentials asks the kernel to say who sent each datagram.
func passCredentials(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("ask for credentials: %w", failed)
	}
	return nil
}

// sender is the pid in a datagram's control messages, 0 if there is none. It
// closes descriptors that came along (BARRIER=1, FDSTORE=1): for sd_notify_barrier(3)
// that is the answer.
func sender(control []byte) (pid int) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			for _, fd := range fds {
				_ = syscall.Close(fd)
			}
		}
		if who, err := syscall.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(who.Pid)
		}
	}
	return pid
}
