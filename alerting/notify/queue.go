package notify

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// errAttemptTimeout is the cause of an attempt that took too long.
var errAttemptTimeout = errors.New("receiver did not answer in time")

// queue is one receiver's waiting room: a slot for each incident and severity,
// and in it only the last state.
type queue struct {
	cfg      Config
	notifier Notifier
	done     func(key, receiver string)
	log      *slog.Logger
	wake     chan struct{} // capacity 1: something was posted
	stopped  chan struct{} // closed when run returns

	// mu guards the fields below.
	mu      sync.Mutex
	slots   map[slotID]*slot
	arrived uint64         // slots opened so far, for first come, first served
	open    map[string]int // notices posted and not yet settled, by key
	stats   ReceiverStats
}

type slotID struct{ incident, severity string }

type slot struct {
	id     slotID
	order  uint64
	notice Notice   // the last state
	keys   []string // of the last state and of all it supersedes
	// unheard: the slot began with a Notice that is First, and nothing of it
	// was tried.
	unheard  bool
	attempts int // failed in a row
	next     time.Time
}

func newQueue(cfg Config, n Notifier, deps Deps) *queue {
	return &queue{
		cfg:      cfg,
		notifier: n,
		done:     deps.Done,
		log:      deps.Log.With("receiver", n.Name()),
		wake:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		slots:    map[slotID]*slot{},
		open:     map[string]int{},
		stats:    ReceiverStats{Receiver: n.Name()},
	}
}

func (q *queue) post(notices []Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range notices {
		q.open[n.Key()]++
	}
	for _, n := range notices {
		q.placeLocked(n)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// placeLocked puts n in its slot. A newer state replaces the older one; a state
// older than what waits there is settled together with it.
func (q *queue) placeLocked(n Notice) {
	id := slotID{n.Incident, n.Severity}
	s, waiting := q.slots[id]
	if !waiting {
		q.arrived++
		s = &slot{id: id, order: q.arrived, notice: n, unheard: n.First && n.Firing}
		q.slots[id] = s
	}
	s.keys = append(s.keys, n.Key())
	if n.Step >= s.notice.Step {
		s.notice = n
	}
}

// run delivers until ctx ends. Attempts run under their own context.
func (q *queue) run(ctx, attempts context.Context) {
	defer close(q.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if s := q.take(time.Now()); s != nil {
			q.attempt(ctx, attempts, s)
			continue
		}
		timer.Reset(q.untilNext(time.Now()))
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// take returns the slot to try now, or nil: pages before tickets, then first
// come, first served. Every slot waits for its own retry, so that one notice a
// receiver chokes on does not hold up the rest. Slots that cancelled themselves
// are settled on the way.
func (q *queue) take(now time.Time) *slot {
	q.mu.Lock()
	var best *slot
	var settled []string
	for _, s := range q.slots {
		if s.unheard && !s.notice.Firing {
			q.stats.Cancelled++
			settled = append(settled, q.settleLocked(s.keys)...)
			delete(q.slots, s.id)
			continue
		}
		if s.next.After(now) {
			continue
		}
		if best == nil || before(s, best) {
			best = s
		}
	}
	if best != nil {
		best.unheard = false
	}
	q.mu.Unlock()
	q.tell(settled)
	return best
}

func before(a, b *slot) bool {
	if pa, pb := a.id.severity == SeverityPage, b.id.severity == SeverityPage; pa != pb {
		return pa
	}
	return a.order < b.order
}

// untilNext is how long nothing can be tried unless something is posted.
func (q *queue) untilNext(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := time.Hour // chosen: with nothing queued only a post wakes the queue
	for _, s := range q.slots {
		wait = min(wait, s.next.Sub(now))
	}
	return max(wait, 0)
}

// attempt tries the slot's last state once and records what came of it.
func (q *queue) attempt(ctx, attempts context.Context, s *slot) {
	q.mu.Lock()
	notice, covered := s.notice, len(s.keys)
	if s.attempts > 0 {
		q.stats.Retries++
	}
	q.mu.Unlock()

	actx, cancel := context.WithTimeoutCause(attempts, q.cfg.Timeout, errAttemptTimeout)
	err := q.notifier.Notify(actx, notice)
	if err != nil && context.Cause(actx) == errAttemptTimeout && !IsPermanent(err) {
		err = errors.Join(errAttemptTimeout, err)
	}
	cancel()
	if err != nil && attempts.Err() != nil {
		return // our own shutdown is no failure of the receiver
	}

	log := q.log.With("key", notice.Key(), "severity", notice.Severity, "firing", notice.Firing)
	q.mu.Lock()
	var settled []string
	switch {
	case err == nil:
		q.stats.Delivered++
		settled = q.settleLocked(s.keys[:covered])
		q.dropLocked(s, covered)
	case IsPermanent(err):
		q.stats.Failed++
		q.stats.Dead++
		q.forgetLocked(s.keys[:covered])
		q.dropLocked(s, covered)
	default:
		q.stats.Failed++
		s.attempts++
		s.next = time.Now().Add(backoff(q.cfg, s.attempts))
	}
	failures := s.attempts
	q.mu.Unlock()

	switch {
	case err == nil:
		log.Info("notice accepted")
	case IsPermanent(err):
		log.Error("notice refused for good; repair the receiver, the notice is a dead letter", "err", err)
	case failures == 1:
		log.Warn("notice not accepted, trying again", "err", err)
	default:
		log.Debug("notice not accepted, trying again", "err", err, "attempts", failures)
	}
	q.tell(settled)
}

// dropLocked takes the first n keys off the slot; a slot without keys is gone,
// one with keys holds a newer state that is tried at once.
func (q *queue) dropLocked(s *slot, n int) {
	s.keys = append([]string(nil), s.keys[n:]...)
	s.attempts, s.next = 0, time.Time{}
	if len(s.keys) == 0 {
		delete(q.slots, s.id)
	}
}

// settleLocked counts the keys down and returns those with nothing open.
func (q *queue) settleLocked(keys []string) []string {
	var settled []string
	for _, k := range keys {
		n, known := q.open[k]
		if !known {
			continue // a dead letter shares the key
		}
		if n > 1 {
			q.open[k] = n - 1
			continue
		}
		delete(q.open, k)
		settled = append(settled, k)
	}
	return settled
}

// forgetLocked makes sure that the keys of a dead letter are never called done.
func (q *queue) forgetLocked(keys []string) {
	for _, k := range keys {
		delete(q.open, k)
	}
}

func (q *queue) tell(keys []string) {
	for _, k := range keys {
		q.done(k, q.notifier.Name())
	}
}

func (q *queue) snapshot() ReceiverStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Queued = len(q.slots)
	return s
}

// backoff doubles from FirstRetry to LastRetry and draws from the upper half,
// so that receivers which died together are not all called together.
func backoff(cfg Config, attempts int) time.Duration {
	d := cfg.FirstRetry
	for range attempts - 1 {
		if d >= cfg.LastRetry {
			break
		}
		d *= 2
	}
	d = min(d, cfg.LastRetry)
	return d/2 + rand.N(d/2+1)
}
