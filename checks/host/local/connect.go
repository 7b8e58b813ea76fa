package local

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// request is the shortest thing an HTTP server must answer. It carries bytes
// because TCP_DEFER_ACCEPT hides connections that do not (uwsgi, apache). A
// server of another protocol closes on it, or waits for more: that it took the
// connection is what counts.
const request = "GET / HTTP/1.0\r\n\r\n"

// connect looks once, until life ends.
func (l *Looker) connect(life context.Context, began time.Time) Result {
	ctx, cancel := context.WithTimeout(life, Timeout)
	defer cancel()
	c, err := l.dial(ctx)
	switch {
	case refused(err):
		return Result{Look: checks.LocalRefused}
	case timedOut(err):
		return Result{Look: checks.LocalUnanswered} // its queue is full: nobody takes from it
	case err != nil: // a reset: it was made, and closed before we were told
		return Result{Look: checks.LocalFailed, Reset: reset(err)}
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	result := Result{Peer: peer(c)}
	if _, err := io.WriteString(c, request); err != nil {
		result.Look, result.Reset = afterConnect(err), reset(err)
		return result
	}
	await(life, c, began.Add(Early), &result)
	if result.Look == checks.LocalUnanswered { // so far
		l.sayEarly(c, result, began)
		deadline, _ := ctx.Deadline()
		await(life, c, deadline, &result)
	}
	if ctx.Err() == nil || result.Look != checks.LocalFailed {
		return l.taken(c, result)
	}
	return result
}

// await reads a byte until the deadline.
func await(life context.Context, c net.Conn, deadline time.Time, r *Result) {
	r.Look = checks.LocalFailed
	if c.SetReadDeadline(deadline) != nil || life.Err() != nil { // the deadline of its end may just have been overwritten
		return
	}
	_, err := c.Read(make([]byte, 1))
	r.Look, r.Reset = afterConnect(err), reset(err)
}

func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// sayEarly publishes what is known of a look in flight.
func (l *Looker) sayEarly(c net.Conn, r Result, began time.Time) {
	r = l.taken(c, r)
	r.Began, r.Ended = began, time.Now()
	l.mu.Lock()
	l.early = r
	l.mu.Unlock()
}

// taken tells an unanswered connection that was accepted from one that was not.
func (l *Looker) taken(c net.Conn, r Result) Result {
	if r.Look != checks.LocalUnanswered || l.deps.Accepted == nil {
		return r
	}
	client, server := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	if !client.IsValid() || !server.IsValid() {
		return r
	}
	accepted, known := l.deps.Accepted(client, server)
	if r.Exact = known; known && accepted {
		r.Look = checks.LocalAccepted
	}
	return r
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func (l *Looker) dial(ctx context.Context) (net.Conn, error) {
	dial := l.deps.Dial
	if dial == nil {
		var d net.Dialer
		d.SetMultipathTCP(false)
		dial = d.DialContext
	}
	if l.listener.Path != "" {
		return dial(ctx, "unix", l.listener.Path)
	}
	return dial(ctx, "tcp", target(l.listener.Addr).String())
}

// target replaces a wildcard by the loopback address of its family.
func target(a netip.AddrPort) netip.AddrPort {
	switch {
	case !a.Addr().IsUnspecified():
		return a
	case a.Addr().Is4():
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), a.Port())
}

// refused: nobody listens. A unix socket that is gone has no name either.
func refused(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT))
}

// afterConnect says what the first byte, or its absence, means. A reset is no
// orderly close: the socket was torn down under us.
func afterConnect(err error) checks.LocalLook {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return checks.LocalAnswered
	case timedOut(err):
		return checks.LocalUnanswered
	}
	return checks.LocalFailed
}

// timedOut includes a unix socket whose accept queue is full: connecting to it
// without waiting fails with EAGAIN (unix(7)).
func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() || errors.Is(err, syscall.EAGAIN)
}
