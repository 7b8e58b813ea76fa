// Package local makes our own connection to a listener of this host, off the
// path of whoever asks for its result.
package local

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// Timeout of one look; chosen: a healthy local server answers in
	// milliseconds, a busy one in a few hundred.
	Timeout = time.Second
	// maxWait is the longest pause between looks that went unanswered: each
	// leaves an entry in a dead accept queue, and 64 is a small backlog.
	maxWait = time.Minute
	// request is the shortest thing an HTTP server must answer. It carries
	// bytes because TCP_DEFER_ACCEPT hides connections that do not.
	request = "GET / HTTP/1.0\r\n\r\n"
)

// Looker looks at one listener, one connection at a time. The zero value with
// Addr and Every set is ready.
type Looker struct {
	// Addr is the listener; a wildcard is looked at on loopback.
	Addr netip.AddrPort
	// Every is the least time between two looks.
	Every time.Duration

	mu     sync.Mutex // guards the fields below
	flying bool
	epoch  int // of the present need; a look begun before counts no more
	last   time.Time
	wait   time.Duration
	result Result
	wg     sync.WaitGroup
	ctx    context.Context // of the looks; made by the first, ended by Close
	cancel context.CancelFunc
	closed bool
}

// Result is how one look went. The zero value is that none has ended.
type Result struct {
	Look         checks.LocalLook
	Began, Ended time.Time
}

// Look starts a look if none is in flight and it is time, and returns the
// result of the last that ended since Rest.
func (l *Looker) Look(now time.Time) (last Result, started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.flying && !l.closed && (l.last.IsZero() || now.Sub(l.last) >= max(l.wait, l.Every)) {
		l.flying, l.last, started = true, now, true
		if l.ctx == nil {
			l.ctx, l.cancel = context.WithCancel(context.Background())
		}
		epoch := l.epoch
		l.wg.Go(func() { l.run(epoch, now) })
	}
	return l.result, started
}

// Rest says that no look is needed now, and forgets what was seen.
func (l *Looker) Rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.result, l.wait, l.last = Result{}, 0, time.Time{}
}

// Close ends the look in flight, waits for it, and lets none begin any more.
func (l *Looker) Close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// Wait returns when no look is in flight, after Timeout at the latest.
func (l *Looker) Wait() { l.wg.Wait() }

func (l *Looker) run(epoch int, began time.Time) {
	result := connect(l.ctx, target(l.Addr))
	ended := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = false
	if epoch == l.epoch {
		l.result = Result{result, began, ended}
		if result == checks.LocalUnanswered {
			l.wait = min(max(2*l.wait, l.Every), maxWait)
		} else {
			l.wait = 0
		}
	}
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

func connect(ctx context.Context, addr netip.AddrPort) checks.LocalLook {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", addr.String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return checks.LocalRefused
	case timedOut(err):
		return checks.LocalUnanswered // its queue is full: nobody takes from it
	case err != nil:
		return checks.LocalFailed
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return checks.LocalFailed
	}
	if _, err := io.WriteString(c, request); err != nil {
		return afterConnect(err)
	}
	_, err = c.Read(make([]byte, 1))
	return afterConnect(err)
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

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
