// Package local makes our own connection to a listener of this host, off the
// path of whoever asks for its result. It learns what became of the connection,
// and proves nothing.
package local

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// Timeout of one look; chosen: a healthy local server answers in
	// milliseconds, a busy one in a few hundred.
	Timeout = time.Second
	// Early is when a look in flight can say that it is unanswered so far, to whom
	// that is worth something (JUDGING section 3, P3: unanswered for 300 ms).
	Early = 300 * time.Millisecond
	// maxWait is the longest pause between looks that went unanswered: each
	// leaves an entry in a dead accept queue, and 64 is a small backlog.
	maxWait = time.Minute
)

// Listener names a listener: Addr, or Path for a unix socket ("@name" in the
// abstract namespace). A wildcard address is looked at on loopback.
type Listener struct {
	Addr netip.AddrPort
	Path string
}

// Valid reports whether it names one.
func (l Listener) Valid() bool { return l.Path != "" || l.Addr.IsValid() }

// Deps are a looker's surroundings. The zero value is our own network namespace,
// and that nobody can tell whether a connection was accepted.
type Deps struct {
	// Dial makes a connection in the network namespace of the target; nil makes
	// it in ours.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Accepted says whether the server has taken the connection from its accept
	// queue; known is false if that cannot be told. It may be nil.
	Accepted func(client, server netip.AddrPort) (accepted, known bool)
}

// Through returns a Dial whose sockets are made within within, which calls what
// it is given inside a network namespace (host.Observer.InNamespace): net makes
// the socket of a numeric address, or a path, where it is asked to dial.
func Through(within func(f func() error) error) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		var d net.Dialer
		d.SetMultipathTCP(false)
		err = within(func() (err error) {
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// Looker looks at one listener, one connection at a time, for all who ask it.
// Make it with New.
type Looker struct {
	listener Listener
	deps     Deps

	mu     sync.Mutex // guards the fields below
	flying bool
	begun  time.Time // the last look
	early  Result    // of the look in flight, once it is as old as Early
	last   Result    // of the last look that ended
	wait   time.Duration
	// answered: it has answered our bytes at some time.
	answered bool
	wg       sync.WaitGroup
	abort    context.CancelFunc // of the look in flight
	ctx      context.Context    // of the looks; made by the first, ended by Close
	cancel   context.CancelFunc
	closed   bool
}

// New makes a looker.
func New(l Listener, deps Deps) *Looker { return &Looker{listener: l, deps: deps} }

// Listener is what it looks at.
func (l *Looker) Listener() Listener { return l.listener }

// Result is how one look went. The zero value is that none has.
type Result struct {
	Look checks.LocalLook
	// Began, and Ended: for a look in flight, when it was as old as Early.
	Began, Ended time.Time
	// Exact: the kernel told whether an unanswered connection was accepted. Without it
	// Look is LocalUnanswered in both cases.
	Exact bool
	// Reset: it failed by a reset after the connection was made. If the listener goes
	// on listening, whoever took it closed it with our bytes unread (php-fpm).
	Reset bool
	// Peer is the process that made the listening unix socket; 0 if not known.
	Peer int
}

// Ask says what a caller needs.
type Ask struct {
	// Since is when the caller's present need began: looks begun before it tell
	// it nothing.
	Since time.Time
	// Every is the least time between two looks; those that go unanswered are
	// made less and less often.
	Every time.Duration
	// Early: a look in flight that is unanswered so far is a result.
	Early bool
}

// Look starts a look if none is in flight and it is time, and returns the result
// of the last one of those asked for.
func (l *Looker) Look(now time.Time, ask Ask) (last Result, started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.begun.Before(ask.Since) // a new need waits for nothing
	if fresh {
		l.wait = 0
		if l.flying {
			l.abort() // it tells the new need nothing, and may hang
		}
	}
	if !l.flying && !l.closed && (fresh || l.begun.IsZero() || now.Sub(l.begun) >= max(l.wait, ask.Every)) {
		l.flying, l.begun, started = true, now, true
		l.early = Result{}
		if l.ctx == nil {
			l.ctx, l.cancel = context.WithCancel(context.Background())
		}
		ctx, abort := context.WithCancel(l.ctx)
		l.abort = abort
		l.wg.Go(func() { defer abort(); l.run(ctx, now, ask.Every) })
	}
	if ask.Early && l.flying && l.early.Look != "" && !l.early.Began.Before(ask.Since) {
		return l.early, started
	}
	if l.last.Began.Before(ask.Since) {
		return Result{}, started
	}
	return l.last, started
}

// Answered reports whether the listener has ever answered our bytes. Before it
// has, silence after it took a connection says nothing: it may speak another
// protocol and wait for more.
func (l *Looker) Answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered
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

func (l *Looker) run(ctx context.Context, began time.Time, every time.Duration) {
	result := l.connect(ctx, began)
	result.Began, result.Ended = began, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = false
	if ctx.Err() != nil {
		return // nobody learns anything of a look that we ended ourselves
	}
	l.last = result
	l.answered = l.answered || result.Look == checks.LocalAnswered
	if result.Look == checks.LocalUnanswered || result.Look == checks.LocalAccepted {
		l.wait = min(max(2*l.wait, every), maxWait)
	} else {
		l.wait = 0
	}
}

// Pool hands out one looker per target and listener, so that all checks of a
// process together have one connection in flight to each. The zero value is
// ready.
type Pool struct {
	mu   sync.Mutex // guards all
	all  map[poolKey]*Looker
	shut bool
}

type poolKey struct {
	target   string
	listener Listener
}

// Looker returns the looker of a listener; deps count only where it is made.
func (p *Pool) Looker(target string, l Listener, deps Deps) *Looker {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := poolKey{target, l}
	got := p.all[k]
	if got == nil {
		got = New(l, deps)
		if p.all == nil {
			p.all = map[poolKey]*Looker{}
		}
		p.all[k] = got
		if p.shut {
			got.Close()
		}
	}
	return got
}

// Close closes every looker, those made later too. It returns nil.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.shut = true
	all := make([]*Looker, 0, len(p.all))
	for _, l := range p.all {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.Close()
	}
	return nil
}
