package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// lookups asks for single connections, from any goroutine. The zero value is
// ready.
type lookups struct {
	mu    sync.Mutex // guards the fields below
	own   *diag
	other map[uint64]inside // by the inode of the namespace
	ended bool
}

// inside is a network namespace other than ours: a sock_diag socket in it, and
// the namespace itself.
type inside struct {
	diag *diag
	ns   int
}

// Accepted reports whether a process took our own connection from the accept
// queue: the server's side of it has an inode. client and server are its
// addresses as the client sees them (LocalAddr, RemoteAddr). known is false if
// there is no such connection (it was reset, or is behind an address translation)
// or if we could not look. Safe from any goroutine; it does not wait.
func (o *Observer) Accepted(target string, client, server netip.AddrPort) (accepted, known bool) {
	t := o.byName[target]
	if t == nil {
		return false, false
	}
	c, ok, err := o.lookups.find(t.inside.Load(), client, server)
	if err != nil {
		o.stats.errors.Add(1)
		return false, false
	}
	return ok && c.accepted(), ok
}

// find asks in a network namespace, ours if it is 0.
func (l *lookups) find(namespace uint64, client, server netip.AddrPort) (c connection, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return c, false, nil
	}
	if namespace != 0 {
		in, open := l.other[namespace]
		if !open {
			return c, false, nil // it was closed meanwhile
		}
		return in.diag.lookup(client, server)
	}
	if l.own == nil {
		if l.own, err = openDiag(); err != nil {
			return c, false, err
		}
	}
	return l.own.lookup(client, server)
}

// add takes over the sockets of a namespace.
func (l *lookups) add(namespace uint64, d *diag, ns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.other == nil {
		l.other = map[uint64]inside{}
	}
	l.other[namespace] = inside{d, ns}
}

// namespace returns a new descriptor of a namespace, which the caller closes.
func (l *lookups) namespace(ino uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, open := l.other[ino]
	if !open {
		return -1, errors.New("the network namespace is not open any more")
	}
	fd, err := unix.FcntlInt(uintptr(in.ns), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("copy the descriptor of a network namespace: %w", err)
	}
	return fd, nil
}

// drop closes a namespace.
func (l *lookups) drop(namespace uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in, open := l.other[namespace]; open {
		in.diag.close()
		unix.Close(in.ns)
		delete(l.other, namespace)
	}
}

// close gives the sockets back; what is asked after it is not known.
func (l *lookups) close() {
	l.mu.Lock()
	l.ended = true
	if l.own != nil {
		l.own.close()
		l.own = nil
	}
	l.mu.Unlock()
}

// lookup finds the server's side of a connection.
func (d *diag) lookup(client, server netip.AddrPort) (c connection, ok bool, err error) {
	d.seq++
	if err := sendKernel(d.fd, lookupRequest(server, client, ifindex(server.Addr().Zone()), d.seq)); err != nil {
		return c, false, fmt.Errorf("ask sock_diag: %w", err)
	}
	for {
		n, err := receiveNow(d.fd, d.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return c, false, fmt.Errorf("read sock_diag: %w", err)
		}
		c, ok, more, err := parseLookup(d.buf[:n], d.seq)
		if !more {
			return c, ok, err
		}
	}
}

// ifindex is the number of the interface that a zone names, 0 for none.
func ifindex(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 31); err == nil || zone == "" {
		return uint32(n)
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(i.Index)
}
