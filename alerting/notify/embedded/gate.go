package embedded

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/notify"
)

// gate stands before a notification pipeline and knows what is under way in it.
// Alertmanager's Dispatcher.Stop cuts notifications without waiting for them: a
// page that was accepted but not yet logged would be sent again by the next
// dispatcher.
type gate struct {
	next notify.Stage

	// mu guards the fields below.
	mu     sync.Mutex
	closed bool
	busy   int
	idle   chan struct{} // closed when closed and not busy
}

func newGate(next notify.Stage) *gate {
	return &gate{next: next, idle: make(chan struct{})}
}

// Exec implements notify.Stage. Behind a closed gate it waits to be cancelled:
// the alerts stay with the store and the next dispatcher takes them.
func (g *gate) Exec(ctx context.Context, log *slog.Logger, alerts ...*alert.Alert) (context.Context, []*alert.Alert, error) {
	if !g.enter() {
		<-ctx.Done()
		return ctx, nil, ctx.Err()
	}
	defer g.leave()
	return g.next.Exec(ctx, log, alerts...)
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.busy++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	if g.closed && g.busy == 0 {
		close(g.idle)
	}
}

// drain closes the gate and waits until nothing is under way, limit at most.
func (g *gate) drain(limit time.Duration) {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		if g.busy == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.idle:
	case <-timer.C:
	}
}

// wait returns when nothing is under way behind the closed gate.
func (g *gate) wait() { <-g.idle }
