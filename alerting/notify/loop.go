package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Defaults of Config.
const (
	// DefaultFirstRetry is chosen: a page that met a restarting receiver is
	// late by a tenth of a second only.
	DefaultFirstRetry = 100 * time.Millisecond
	// DefaultLastRetry is chosen: a receiver that comes back hears within 10 s.
	DefaultLastRetry = 10 * time.Second
	// DefaultTimeout of one attempt is Alertmanager's own minimum
	// (notify.MinTimeout, 10 s in 0.35).
	DefaultTimeout = 10 * time.Second
	// DefaultGrace is chosen: it leaves more than half of the 5 s that a clean
	// stop may take to the others.
	DefaultGrace = 2 * time.Second
)

// Config holds a Loop's limits. The zero value of each field means its default.
type Config struct {
	// FirstRetry is the wait after the first failed attempt; it doubles up to
	// LastRetry. The real wait is drawn from its upper half.
	FirstRetry, LastRetry time.Duration
	// Timeout bounds one attempt.
	Timeout time.Duration
	// Grace is how long an attempt that is under way may go on at shutdown.
	Grace time.Duration
}

// Deps are the live things a Loop works with.
type Deps struct {
	Notifiers []Notifier
	// Done is called after a receiver has accepted everything posted under a
	// key, or will never need it any more. It is called from the receiver's own
	// goroutine; a slow Done delays that receiver. May be nil.
	Done func(key, receiver string)
	// Log may be nil.
	Log *slog.Logger
}

// Loop delivers notices: one queue and one goroutine for each receiver, so that
// a slow or dead receiver delays nobody else.
type Loop struct {
	cfg    Config
	queues []*queue
}

// NewLoop returns a Loop that delivers as soon as Run is called.
func NewLoop(cfg Config, deps Deps) *Loop {
	cfg.FirstRetry = orDefault(cfg.FirstRetry, DefaultFirstRetry)
	cfg.LastRetry = max(orDefault(cfg.LastRetry, DefaultLastRetry), cfg.FirstRetry)
	cfg.Timeout = orDefault(cfg.Timeout, DefaultTimeout)
	cfg.Grace = orDefault(cfg.Grace, DefaultGrace)
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Done == nil {
		deps.Done = func(string, string) {}
	}
	l := &Loop{cfg: cfg}
	for _, n := range deps.Notifiers {
		l.queues = append(l.queues, newQueue(cfg, n, deps))
	}
	return l
}

// Post hands notices to every receiver's queue and returns at once. It loses
// nothing while the process lives; after a restart the engine posts again what
// is not done. Notices that share a key (a page and a ticket that end with the
// same step) belong in one call: their key is done when all of them are.
func (l *Loop) Post(notices ...Notice) {
	for _, q := range l.queues {
		q.post(notices)
	}
}

// Run delivers until ctx ends, then lets attempts under way finish within the
// grace. What is still queued stays undone. Run may be called once.
func (l *Loop) Run(ctx context.Context) error {
	attempts, stopAttempts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAttempts()
	var wg sync.WaitGroup
	for _, q := range l.queues {
		wg.Go(func() { q.run(ctx, attempts) })
	}
	idle := make(chan struct{})
	wg.Go(func() {
		<-ctx.Done()
		select {
		case <-time.After(l.cfg.Grace):
			stopAttempts()
		case <-idle:
		}
	})
	for _, q := range l.queues {
		<-q.stopped
	}
	close(idle)
	wg.Wait()
	return nil
}

// ReceiverStats is what one receiver's queue has done since the start.
type ReceiverStats struct {
	Receiver  string
	Delivered uint64 // notices accepted
	Failed    uint64 // attempts that ended in an error, permanent ones included
	Retries   uint64 // attempts after the first of a notice
	Dead      uint64 // notices the receiver will never accept
	Cancelled uint64 // notices that a resolve overtook before anybody heard of them
	Queued    int    // incidents and severities with something to deliver now
}

// Stats returns one entry for each receiver, in the order of Deps.Notifiers.
func (l *Loop) Stats() []ReceiverStats {
	stats := make([]ReceiverStats, 0, len(l.queues))
	for _, q := range l.queues {
		stats = append(stats, q.snapshot())
	}
	return stats
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}
