package httpcheck

import (
	"crypto/tls"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// The phases of a look. Between them lies our own share, which belongs to none.
const (
	phaseResolve  = "resolve"
	phaseConnect  = "connect"
	phaseTLS      = "tls"
	phaseRequest  = "request"
	phaseWait     = "wait"
	phaseTransfer = "transfer"
)

// attempt is one connection attempt that has ended.
type attempt struct {
	addr string
	err  error
}

// timeline cuts the time of one look into phases. At any moment at most one
// phase runs, so that their sum cannot exceed the whole. Over redirects a
// phase's time adds up. httptrace calls from several goroutines, some of them
// after the look is over.
type timeline struct {
	mu sync.Mutex
	// mu guards the fields below.
	phases    []checks.Phase
	current   string // "" is our own share
	since     time.Time
	connected bool // this hop has its connection: attempts that end now lost the race
	began     bool // this hop's answer has begun
	ended     bool // this hop's peer has said that no more will come
	attempts  []attempt
	trying    netip.AddrPort // the address tried last, in the last hop
	first     netip.AddrPort // the address tried last, in the first hop
	hops      int
	over      bool
}

// enter ends the current phase and begins another.
func (t *timeline) enter(phase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enterLocked(phase)
}

func (t *timeline) enterLocked(phase string) {
	if t.over {
		return
	}
	now := time.Now()
	if t.current != "" {
		t.phases[t.indexLocked(t.current)].Took += now.Sub(t.since)
	}
	if phase != "" {
		t.indexLocked(phase)
	}
	t.current, t.since = phase, now
}

// indexLocked returns the phase's place in order of first happening.
func (t *timeline) indexLocked(phase string) int {
	for i, p := range t.phases {
		if p.Name == phase {
			return i
		}
	}
	t.phases = append(t.phases, checks.Phase{Name: phase})
	return len(t.phases) - 1
}

// stop ends the look: whatever is traced later is ignored. It returns a copy
// that nobody writes any more, whose current is the phase that was cut.
func (t *timeline) stop() *timeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	cut := t.current
	t.enterLocked("")
	t.over = true
	return &timeline{
		phases: t.phases, current: cut, connected: t.connected, began: t.began, ended: t.ended,
		attempts: t.attempts, trying: t.trying, first: t.first, hops: t.hops, over: true,
	}
}

// trace returns the hooks that fill the timeline in.
func (t *timeline) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:           func(string) { t.nextHop() },
		DNSStart:          func(httptrace.DNSStartInfo) { t.enter(phaseResolve) },
		DNSDone:           func(httptrace.DNSDoneInfo) { t.enter("") },
		ConnectStart:      func(_, addr string) { t.connectStart(addr) },
		ConnectDone:       func(_, addr string, err error) { t.connectDone(addr, err) },
		TLSHandshakeStart: func() { t.enter(phaseTLS) },
		TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { t.handshakeDone(err) },
		GotConn:           func(httptrace.GotConnInfo) { t.enter(phaseRequest) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				t.wroteRequest()
			}
		},
		GotFirstResponseByte: func() { t.answerBegins() },
	}
}

// peerEnded notes the end of what the peer sends.
func (t *timeline) peerEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.ended = true
	}
}

func (t *timeline) nextHop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enterLocked("")
	t.connected, t.began, t.ended, t.attempts = false, false, false, nil
	t.hops++
}

func (t *timeline) connectStart(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.connected {
		return
	}
	t.tryingLocked(addr)
	if t.current != phaseConnect { // one of several addresses otherwise
		t.enterLocked(phaseConnect)
	}
}

func (t *timeline) tryingLocked(addr string) {
	t.trying, _ = netip.ParseAddrPort(addr)
	if t.hops == 1 {
		t.first = t.trying
	}
}

func (t *timeline) connectDone(addr string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.connected {
		return
	}
	t.attempts = append(t.attempts, attempt{addr, err})
	if err != nil {
		return // another address may still answer; the dialler says when all have failed
	}
	t.connected = true
	t.tryingLocked(addr)
	t.enterLocked("")
}

// handshakeDone ends the phase, unless it failed: then it runs on until the look
// is over, so that it is known as the phase that failed.
func (t *timeline) handshakeDone(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.current == phaseTLS {
		t.enterLocked("")
	}
}

// wroteRequest may come after the first byte of the answer: a server need not
// read all of a request.
func (t *timeline) wroteRequest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == phaseRequest {
		t.enterLocked(phaseWait)
	}
}

func (t *timeline) answerBegins() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == phaseRequest || t.current == phaseWait {
		t.began = true
		t.enterLocked(phaseTransfer)
	}
}
