package vantage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

const (
	// batchFor is how long passing evidence waits for company.
	batchFor = 100 * time.Millisecond
	// maxWaiting bounds the evidence kept while the core is away. Chosen: 1,000
	// looks every 15 s for two and a half minutes, about 10 MB.
	maxWaiting = 10_000
	// maxBodyBytes bounds a message. Chosen: half of NATS' default max_payload.
	maxBodyBytes = 512 << 10
	// publishTimeout bounds one attempt. Chosen: an fsync takes milliseconds,
	// one of a drowning disk a second.
	publishTimeout = 5 * time.Second
	retryFirst     = 100 * time.Millisecond
	retryMost      = 2 * time.Second
	// lastFlush is how long a shutdown waits for the core.
	lastFlush = time.Second
)

// OutboxStats counts what left the vantage, since the start.
type OutboxStats struct {
	Published, Messages uint64 // pieces of evidence, and the messages they went in
	PublishErrors       uint64 // failed attempts
	// Dropped counts pieces given up: the oldest when too many waited, and any
	// that fits no message.
	Dropped uint64
	// Waiting counts pieces not acknowledged yet.
	Waiting int
}

// outbox batches evidence by kind and sends it in order, one message at a time.
type outbox struct {
	vantage evidence.Vantage
	boot    string
	publish Publisher
	log     *slog.Logger
	wake    chan struct{} // holds one value when there may be something to do

	mu      sync.Mutex // guards the fields below
	seq     uint64     // of the newest piece
	queues  map[checks.Kind][]piece
	queued  int // pieces in queues
	sending int // pieces of the message under way
	// flushTo is the sequence up to which nothing may wait for company.
	flushTo uint64
	last    map[string]checks.Outcome // by check, of the newest piece
	counts  OutboxStats
}

// piece is evidence and when its look ended, on the monotonic clock.
type piece struct {
	evidence.Evidence
	ended, queued time.Time
	hurry         bool
}

func newOutbox(v evidence.Vantage, boot string, p Publisher, log *slog.Logger) *outbox {
	return &outbox{
		vantage: v, boot: boot, publish: p, log: log, wake: make(chan struct{}, 1),
		queues: map[checks.Kind][]piece{}, last: map[string]checks.Outcome{},
	}
}

// put numbers a piece and lines it up. Urgent and failing evidence, evidence
// somebody asked for, and evidence that differs from its check's last leave at
// once, and what waits goes with them.
func (o *outbox) put(e evidence.Evidence, ended time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	e.Seq, e.Vantage, e.Boot = o.seq, o.vantage, o.boot
	last, seen := o.last[e.Check]
	o.last[e.Check] = e.Finding.Outcome
	p := piece{Evidence: e, ended: ended, queued: time.Now()}
	p.hurry = e.Finding.Urgent || e.Finding.Outcome == checks.Fail || e.Trigger != "" || !seen || last != e.Finding.Outcome
	q := append(o.queues[e.Kind], p)
	o.queues[e.Kind] = q
	if o.queued++; o.queued+o.sending > maxWaiting {
		o.dropOldestLocked()
	}
	if p.hurry || len(q) >= evidence.MaxBatch {
		o.flushTo = o.seq
	}
	select {
	case o.wake <- struct{}{}:
	default: // the sender is about to look anyway
	}
}

// dropOldestLocked drops the oldest piece that is not under way.
func (o *outbox) dropOldestLocked() {
	kind, found := o.oldestLocked()
	if !found {
		return
	}
	o.queues[kind] = o.queues[kind][1:]
	o.queued--
	o.counts.Dropped++
}

// oldestLocked returns the kind of the oldest piece in line.
func (o *outbox) oldestLocked() (kind checks.Kind, found bool) {
	for k, q := range o.queues {
		if len(q) > 0 && (!found || q[0].Seq < o.queues[kind][0].Seq) {
			kind, found = k, true
		}
	}
	return kind, found
}

// run sends until ctx ends, or until closing is closed and nothing is left.
func (o *outbox) run(ctx context.Context, closing <-chan struct{}) {
	for {
		var due <-chan time.Time
		wait, any := o.untilDue()
		if any && wait <= 0 {
			o.flush(ctx)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if any {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-closing:
			o.flush(ctx)
			return
		case <-o.wake:
		case <-due:
		}
	}
}

// untilDue returns how long the oldest piece may still wait.
func (o *outbox) untilDue() (wait time.Duration, any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind, any := o.oldestLocked()
	if !any {
		return 0, false
	}
	oldest := o.queues[kind][0]
	if oldest.Seq <= o.flushTo {
		return 0, true
	}
	return batchFor - time.Since(oldest.queued), true
}

// flush sends what is in line now; what comes meanwhile goes with the next.
// It returns when that is done or ctx ended.
func (o *outbox) flush(ctx context.Context) {
	o.mu.Lock()
	upTo := o.seq
	o.mu.Unlock()
	for ctx.Err() == nil {
		kind, batch := o.take(upTo)
		if len(batch) == 0 {
			return
		}
		o.send(ctx, kind, batch)
	}
}

// take takes the next message's pieces out of the line: of the kind that is in
// the greatest hurry, and among equals of the one that waits longest.
func (o *outbox) take(upTo uint64) (kind checks.Kind, batch []piece) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, hurry := false, false
	for k, q := range o.queues {
		if len(q) == 0 || q[0].Seq > upTo {
			continue
		}
		h := slices.ContainsFunc(q, func(p piece) bool { return p.hurry && p.Seq <= upTo })
		if !found || h && !hurry || h == hurry && q[0].Seq < o.queues[kind][0].Seq {
			kind, found, hurry = k, true, h
		}
	}
	if !found {
		return "", nil
	}
	q := o.queues[kind]
	n := 0
	for n < len(q) && n < evidence.MaxBatch && q[n].Seq <= upTo {
		n++
	}
	n = o.fitLocked(q[:n])
	batch = slices.Clone(q[:n])
	o.queues[kind] = q[n:]
	o.queued -= n
	o.sending = n
	return kind, batch
}

// fitLocked returns how many of the pieces fit into one message; at least one.
func (o *outbox) fitLocked(pieces []piece) int {
	n := len(pieces)
	for n > 1 {
		if body, err := o.encode(pieces[:n]); err != nil || len(body) <= maxBodyBytes {
			break // an error shows when the message is sent
		}
		n /= 2
	}
	return n
}

// send sends one message until it is acknowledged, or ctx ends. The pieces and
// the id stay the same over all attempts: the core may have stored an earlier
// one and knows it by its id.
func (o *outbox) send(ctx context.Context, kind checks.Kind, batch []piece) {
	id := fmt.Sprintf("%s-%s-%d", o.vantage.Name, o.boot, batch[0].Seq)
	backoff := retryFirst
	for attempt := 1; ; attempt++ {
		body, err := o.encode(batch)
		if err == nil && len(body) > maxBodyBytes {
			err = fmt.Errorf("evidence of %s takes %d bytes, a message holds %d", batch[0].Check, len(body), maxBodyBytes)
		}
		if err != nil {
			o.log.Error("evidence dropped", "error", err)
			o.sent(func(c *OutboxStats) { c.Dropped += uint64(len(batch)) })
			return
		}
		err = o.attempt(ctx, kind, id, body)
		if err == nil {
			if attempt > 1 {
				o.log.Info("core takes evidence again", "attempts", attempt)
			}
			o.sent(func(c *OutboxStats) { c.Published += uint64(len(batch)); c.Messages++ })
			return
		}
		if attempt == 1 {
			o.log.Warn("core takes no evidence; keeping it", "error", err)
		}
		o.mu.Lock()
		o.counts.PublishErrors++
		o.mu.Unlock()
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, retryMost)
	}
}

func (o *outbox) attempt(ctx context.Context, kind checks.Kind, id string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return o.publish.Publish(ctx, kind, id, body)
}

// sent notes that no message is under way any more.
func (o *outbox) sent(count func(*OutboxStats)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = 0
	count(&o.counts)
}

// encode writes a message's body as of now: each piece says how long it waited.
func (o *outbox) encode(batch []piece) ([]byte, error) {
	now := time.Now()
	b := evidence.Batch{Boot: o.boot, Evidence: make([]evidence.Evidence, len(batch))}
	for i, p := range batch {
		b.Evidence[i] = p.Evidence
		b.Evidence[i].Waited = now.Sub(p.ended)
	}
	return evidence.Encode(b)
}

func (o *outbox) waitingNow() int { return o.stats().Waiting }

func (o *outbox) stats() OutboxStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.counts
	s.Waiting = o.queued + o.sending
	return s
}
