package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// connectorToken is the watcher's token of the connector, never one of a pidfd.
	connectorToken = ^uint32(0)
	// connectorBuffer is asked of the kernel for events not read yet. Chosen: an
	// event holds 768 bytes of it (skb truesize), so about 1,300 of a burst fit.
	connectorBuffer = 1 << 20
	// connectorBatch is how many events are read before targets get their turn;
	// chosen: some milliseconds of work.
	connectorBatch = 1024
	// outsideWindow and outsideMost bound the events of processes that are none of
	// ours: 100 a second (issue "inside evidence at full depth").
	outsideWindow = 10 * time.Second
	outsideMost   = 1000
	// connectorRetry is how long a dropped connector stays dropped; chosen: what a
	// retry may cost (1000 events of 50 µs) is then nothing.
	connectorRetry = 10 * time.Minute
	// initialPIDNamespace is the inode of /proc/self/ns/pid outside all
	// containers: PROC_PID_INIT_INO, linux/proc_ns.h.
	initialPIDNamespace = "pid:[4026531836]"
)

// connector is the socket to the process connector, by which the kernel tells
// of forks and exits at once. Owned by the run goroutine.
type connector struct {
	fd     int // -1 if there is none
	buf    []byte
	events []procEvent
	// What the filter passes now: the mains, sorted; exits without a parent; or
	// everything, because there are too many mains.
	mains   []int
	orphans bool
	all     bool
	drops   uint32 // what the kernel had thrown away for want of room

	outside    int // events since outsideFrom that concern nobody
	outsideAt  time.Duration
	retryAt    time.Duration // 0 unless it was dropped
	mainsSpare []int
}

// openConnector subscribes to the process connector, or says once why not.
func (o *Observer) openConnector() {
	c := &connector{fd: -1, buf: make([]byte, 4096)}
	o.connector = c
	if !o.kernel.pids {
		return // the pids of a recorded tree are not this kernel's
	}
	if err := o.connect(); err != nil {
		o.setConnector(ConnectorRefused)
		o.log.Info("process connector refused: exits of known processes are told by pidfd, and workers that live shorter than a sweep are counted by their parent alone", "error", err)
	}
}

// connect makes the socket. Until the targets have mains, nothing passes.
func (o *Observer) connect() (err error) {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return fmt.Errorf("ask for our pid namespace: %w", err)
	}
	if ns != initialPIDNamespace { // its numbers would not be ours
		return fmt.Errorf("wants the initial pid namespace, %s; this is %s", initialPIDNamespace, ns)
	}
	c := o.connector
	c.mains, c.drops, c.outside, c.retryAt = c.mains[:0], 0, 0, 0
	if c.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR); err != nil {
		c.fd = -1
		return fmt.Errorf("open socket: %w", err)
	}
	defer func() {
		if err != nil {
			o.closeConnector()
		}
	}()
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, connectorBuffer) != nil { // needs CAP_NET_ADMIN
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, connectorBuffer); err != nil {
			return fmt.Errorf("make room for a burst: %w", err)
		}
	}
	if err := c.attach(nil, false, false); err != nil {
		return err
	}
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnIDProc}); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := c.subscribe(); err != nil {
		return err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(-1)} // connectorToken
	if err := unix.EpollCtl(o.kernel.watch.epoll, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		return fmt.Errorf("watch it: %w", err)
	}
	c.orphans = true // from the first main on
	o.setConnector(ConnectorLive)
	return nil
}

// subscribe asks for events. The kernel answers inside sendto(2); one that does
// not answer does not speak to our namespaces.
func (c *connector) subscribe() error {
	if err := sendKernel(c.fd, procRequest(cnMcastListen)); err != nil {
		return fmt.Errorf("subscribe: %w", err) // ECONNREFUSED in another network namespace
	}
	for {
		n, err := receiveNow(c.fd, c.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("subscribe: no answer: %w", err)
		}
		c.events, err = parseProcEvents(c.buf[:n], c.events[:0])
		if err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		for _, e := range c.events {
			if e.kind != procAck {
				continue
			}
			if e.errno != 0 { // EPERM: kernels before 6.6 want CAP_NET_ADMIN
				return fmt.Errorf("subscribe: %w", unix.Errno(e.errno))
			}
			return nil
		}
	}
}

// procRequest is a message to the process connector.
func procRequest(op uint32) []byte {
	ne := binary.NativeEndian
	b := make([]byte, procEventAt+4)
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], nlmsgDone)
	ne.PutUint32(b[nlHeaderLen:], cnIDProc)
	ne.PutUint32(b[nlHeaderLen+4:], cnIDProc)
	ne.PutUint16(b[nlHeaderLen+16:], 4)
	ne.PutUint32(b[procEventAt:], op)
	return b
}

// attach replaces the filter, at once and without losing what waits.
func (c *connector) attach(mains []int, orphans, all bool) error {
	code := procFilter(mains, orphans, all)
	prog := make([]unix.SockFilter, len(code))
	for i, in := range code {
		prog[i] = unix.SockFilter{Code: in.code, Jt: in.jt, Jf: in.jf, K: in.k}
	}
	if err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}); err != nil {
		return fmt.Errorf("attach filter for %d mains: %w", len(mains), err)
	}
	c.mains, c.orphans, c.all = append(c.mains[:0], mains...), orphans, all
	return nil
}

// socketDrops is how many datagrams a socket lost since it was made:
// SK_MEMINFO_DROPS, linux/sock_diag.h.
func socketDrops(fd int) (uint32, error) {
	const skMeminfoDrops, skMeminfoVars = 8, 9
	var info [skMeminfoVars]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	return info[skMeminfoDrops], asError(errno)
}

// closeConnector gives the socket back. Kernels before 6.6 do not notice that a
// listener closed and go on making events for it.
func (o *Observer) closeConnector() {
	c := o.connector
	if c == nil || c.fd < 0 {
		return
	}
	_ = sendKernel(c.fd, procRequest(cnMcastIgnore))
	unix.Close(c.fd)
	c.fd = -1
}

func (o *Observer) setConnector(s ConnectorState) { o.stats.connector.Store(&s) }

// monotonic is now on the clock of the connector's events.
func monotonic() time.Duration {
	var ts unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno) // it exists since Linux 2.6
	}
	return time.Duration(ts.Nano())
}
