package local

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is the process that called listen(2) on the unix socket behind c, as the
// kernel remembers it (unix(7), SO_PEERCRED); 0 for other sockets, and for a
// process of another pid namespace.
func peer(c net.Conn) (pid int) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // an unknown peer is 0
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
