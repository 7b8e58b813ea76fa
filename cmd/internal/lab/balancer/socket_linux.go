package balancer

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// endpoint is an IPv4 address and port.
type endpoint struct {
	ip   [4]byte
	port int
}

// String returns "a.b.c.d:port".
func (e endpoint) String() string { return e.address() + ":" + strconv.Itoa(e.port) }

func (e endpoint) address() string {
	s := ""
	for i, b := range e.ip {
		if i > 0 {
			s += "."
		}
		s += strconv.Itoa(int(b))
	}
	return s
}

// parseEndpoint reads an address and a port as our own parent wrote them.
func parseEndpoint(address, port string) (endpoint, error) {
	var e endpoint
	octet, digits, at := 0, 0, 0
	for i := 0; i <= len(address); i++ {
		if i == len(address) || address[i] == '.' {
			if digits == 0 || at > 3 {
				return e, errors.New("parse address " + address)
			}
			e.ip[at] = byte(octet)
			octet, digits, at = 0, 0, at+1
			continue
		}
		octet = octet*10 + int(address[i]-'0')
		if digits++; address[i] < '0' || address[i] > '9' || octet > 255 {
			return e, errors.New("parse address " + address)
		}
	}
	n, err := strconv.Atoi(port)
	if err != nil || at != 4 || n < 0 || n > 65535 {
		return e, errors.New("parse address " + address + " port " + port)
	}
	e.port = n
	return e, nil
}

const (
	soReuseport     = 15 // include/uapi/asm-generic/socket.h; syscall lacks it on amd64
	backlog         = 511
	prSetName       = 15 // include/uapi/linux/prctl.h
	prSetDumpable   = 4
	sigsetBytes     = 8 // include/uapi/asm-generic/signal.h: 64 signals
	sigactionWords  = 4 // handler, flags, restorer, mask
	sigIgn          = 1 // include/uapi/asm-generic/signal-defs.h
	sysPidfdOpen    = 434
	pidfdNonblock   = syscall.O_NONBLOCK // Linux 5.10
	abortExitStatus = 134                // 128 + SIGABRT, as a shell would say it
)

// bind returns a bound socket for e and, where e.port was 0, its port.
func bind(e *endpoint, reuseport bool) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, errors.New("socket: " + err.Error())
	}
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil && reuseport {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReuseport, 1)
	}
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: e.port, Addr: e.ip})
	}
	if err != nil {
		syscall.Close(fd)
		return -1, errors.New("bind " + e.String() + ": " + err.Error())
	}
	if e.port == 0 {
		name, err := syscall.Getsockname(fd)
		at, ok := name.(*syscall.SockaddrInet4)
		if err != nil || !ok {
			syscall.Close(fd)
			return -1, errors.New("bind " + e.String() + ": no port was given")
		}
		e.port = at.Port
	}
	return fd, nil
}

// listen returns a listening socket for e.
func listen(e *endpoint, reuseport bool) (int, error) {
	fd, err := bind(e, reuseport)
	if err != nil {
		return -1, err
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		syscall.Close(fd)
		return -1, errors.New("listen " + e.String() + ": " + err.Error())
	}
	return fd, nil
}

// refuseNew makes the kernel drop every further SYN for a listening socket and
// leaves the handshakes under way alone. The caller can then empty the accept
// queue for good: without it, a connection that comes between the last accept
// and the close is reset. A dropped client tries again after a second (RFC 6298
// section 2.1) and reaches another socket of the group.
func refuseNew(fd int) {
	filter := [...]syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS, K: tcpFlagsOffset},
		{Code: syscall.BPF_JMP | syscall.BPF_JSET | syscall.BPF_K, K: tcpSYN, Jf: 1},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: 0},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: wholeSegment},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER,
		uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program), 0)
}

// A filter of a listening socket sees the segment from its TCP header on.
const (
	tcpFlagsOffset = 13 // RFC 9293 section 3.1
	tcpSYN         = 0x02
	wholeSegment   = 1 << 18
)

// setName names the process for ps and /proc/PID/comm. It must run on the
// process's first thread, where package initialisation runs.
func setName(name string) {
	text := append([]byte(name), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&text[0])), 0)
}

// ignoreHangup sets SIGHUP to SIG_IGN, which children inherit. The kernel sends
// it to a process group that loses its last tie to its session while one of it
// is stopped (setpgid(2)): main must end its frozen workers then, and tidy up.
func ignoreHangup() {
	ignore := [sigactionWords]uint64{sigIgn}
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGHUP), uintptr(unsafe.Pointer(&ignore)), 0, sigsetBytes, 0, 0)
}

// abort ends the process by SIGABRT with the default action, as a failed
// assertion does. Go's own handler would print every stack and exit with 2.
// Not dumpable first: forty core files a second help nobody.
func abort() {
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	var dfl [sigactionWords]uint64
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT), uintptr(unsafe.Pointer(&dfl)), 0, sigsetBytes, 0, 0)
	syscall.Kill(syscall.Getpid(), syscall.SIGABRT)
	syscall.Exit(abortExitStatus)
}

// whenParentDies calls f when the process that started us has gone. The end of
// our standard input says the same in all ordinary cases; this one holds even
// if somebody else inherited the other end. Before Linux 5.10 it does nothing.
func whenParentDies(f func()) {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(syscall.Getppid()), pidfdNonblock, 0)
	if errno != 0 {
		return
	}
	conn, err := os.NewFile(fd, "parent").SyscallConn()
	if err != nil {
		return
	}
	first := true
	go func() {
		err := conn.Read(func(uintptr) bool {
			ready := !first // returns when poll says readable: the process has ended
			first = false
			return ready
		})
		if err == nil {
			f()
		}
	}()
}
