package httpcheck

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
)

// lookKey is the context key under which dial finds the look it works for.
type lookKey struct{}

// looking is what dial must know of a look.
type looking struct {
	ctx   context.Context
	times *timeline
}

// withTrace returns a context for one request: with its hooks, and with itself
// for dial to find.
func withTrace(ctx context.Context, times *timeline) context.Context {
	traced := httptrace.WithClientTrace(ctx, times.trace())
	return context.WithValue(traced, lookKey{}, looking{traced, times})
}

// dial connects for one look. Transport detaches the context it passes from
// the request's end, since another request might use the connection; ours are
// used once, so that dialling, handshake and connection end with the look.
func (c *Check) dial(detached context.Context, network, address string) (net.Conn, error) {
	look, ok := detached.Value(lookKey{}).(looking)
	if !ok {
		return nil, errors.New("dial outside of a look")
	}
	conn, err := c.dialer.DialContext(look.ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(look.ctx, func() { conn.Close() })
	return &askFirst{Conn: conn, times: look.times, asked: make(chan struct{}), ctx: look.ctx}, nil
}

// askFirst is a connection that is not read before it was written to. A server
// that speaks first, as ssh's does, must be judged by what it said; net/http
// would take it for the remains of an earlier request, log it, and say that
// the connection was closed.
type askFirst struct {
	net.Conn
	times *timeline
	ctx   context.Context // of the look

	once  sync.Once
	asked chan struct{}
}

// Write implements net.Conn.
func (a *askFirst) Write(b []byte) (int, error) {
	defer a.once.Do(func() { close(a.asked) })
	return a.Conn.Write(b)
}

// Read implements net.Conn.
func (a *askFirst) Read(b []byte) (int, error) {
	select {
	case <-a.asked:
	case <-a.ctx.Done():
		return 0, context.Cause(a.ctx)
	}
	n, err := a.Conn.Read(b)
	if errors.Is(err, io.EOF) || isReset(err) {
		a.times.peerEnded()
	}
	return n, err
}
