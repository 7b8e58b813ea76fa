// Package heartbeat is the heartbeat kind: a workload that listens on nothing
// (a queue's consumer, a cron job, a control loop) says by itself that it lives,
// and silence is what is found. It asks nobody and proves nothing: what silence
// means is decided by the judge.
package heartbeat

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what is expected of one workload.
type Config struct {
	// ID is the check's, for the log.
	ID string
	// Every is how often a beat is expected, Grace how much later it may come.
	Every, Grace time.Duration
	// Socket is the path of a unix datagram socket that takes sd_notify messages
	// ($NOTIFY_SOCKET), "@name" in the abstract namespace; empty for none.
	Socket string
	// Workers are expected to beat one by one, under these names. Count expects
	// so many without names: they are told apart by the pid of the sender, or by
	// the name they give. With neither, the workload beats as one.
	Workers []string
	Count   int
}

// Validate reports the first fault.
func (c Config) Validate() error {
	switch {
	case c.Every <= 0 || c.Grace < 0:
		return fmt.Errorf("heartbeat %s: every %s and grace %s: want more than 0, and no less", c.ID, c.Every, c.Grace)
	case len(c.Workers) > 0 && c.Count > 0:
		return fmt.Errorf("heartbeat %s: workers are either named or counted", c.ID)
	case c.Count < 0 || c.Count > WorkersMost || len(c.Workers) > WorkersMost:
		return fmt.Errorf("heartbeat %s: more than %d workers", c.ID, WorkersMost)
	}
	for i, w := range c.Workers {
		if !isName(w) || slices.Contains(c.Workers[:i], w) {
			return fmt.Errorf("heartbeat %s: worker %q is no name, or there twice", c.ID, w)
		}
	}
	return nil
}

// Deps are the live things around a check.
type Deps struct {
	// Changed is called, without waiting, when a finding may have changed: a
	// deadline has passed, a missed one beats again. It must not block.
	Changed func()
	Log     *slog.Logger
}

const (
	// WorkersMost bounds the workers of one check; chosen.
	WorkersMost = 1000
	// ratePerSecond bounds the messages of one check, so that a client gone mad
	// costs us at most some milliseconds a second (README, "Measured").
	ratePerSecond = 1000
	// stalledAfter is how late our own timer may be before we say that it was us
	// who slept: what was sent meanwhile may not have been read. Chosen.
	stalledAfter = time.Second
)

// Check takes beats and looks at what came. Make it with New.
type Check struct {
	cfg  Config
	log  *slog.Logger
	wake func()
	now  func() time.Time
	took atomic.Uint64
	bad  atomic.Uint64

	mu      sync.Mutex // guards the fields below
	since   time.Time  // when we began to wait
	resumed time.Time  // when we woke from a stall of our own
	whole   voice      // the workload: last is the last beat of anybody
	status  string
	intent  intent
	workers map[string]*voice
	pids    map[int]string // who a pid said it was
	due     time.Time      // the next deadline; zero if nothing is expected any more
	timer   *time.Timer    // nil unless running
	broken  error          // why the socket cannot be read; nil if it can
	second  time.Time      // in which the beats over HTTP are counted
	beats   int
	told    map[string]bool // refusals that were logged
	sent    matters
	uneasy  bool // what was sent last was neither well nor the wait for a first beat
}

// New makes the check. It waits from now on.
func New(cfg Config, deps Deps) (*Check, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Check{cfg: cfg, log: deps.Log, wake: deps.Changed, now: time.Now,
		workers: map[string]*voice{}, pids: map[int]string{}, told: map[string]bool{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.wake == nil {
		c.wake = func() {}
	}
	for _, w := range cfg.Workers {
		c.workers[w] = &voice{}
	}
	c.begin()
	return c, nil
}

// begin begins to wait for the first beat.
func (c *Check) begin() {
	c.since = c.now()
	c.due = c.since.Add(c.limit())
}

// ID returns the check's.
func (c *Check) ID() string { return c.cfg.ID }

func (c *Check) limit() time.Duration { return c.cfg.Every + c.cfg.Grace }

// Stats are the check's counters since it was made.
type Stats struct {
	Beats   uint64        // messages taken
	Refused uint64        // messages refused: malformed, of unknown workers, too many
	Age     time.Duration // since the last beat of anybody, or since we wait
}

// Stats returns the counters.
func (c *Check) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Beats: c.took.Load(), Refused: c.bad.Load(), Age: c.now().Sub(later(c.since, c.whole.last))}
}

// Workers are the names of those that beat one by one; none if it beats as one or
// they are told apart by their process ids.
func (c *Check) Workers() []string { return c.cfg.Workers }

// Beat takes a message that came over HTTP. It returns ErrUnknown or ErrTooMany
// for one that it refuses, and has counted that.
func (c *Check) Beat(b Beat) error {
	c.mu.Lock()
	now := c.now()
	if now.Sub(c.second) >= time.Second || c.second.IsZero() {
		c.second, c.beats = now, 0
	}
	c.beats++
	flood := c.beats > ratePerSecond
	c.mu.Unlock()
	if flood {
		err := fmt.Errorf("%w: more than %d in a second", ErrTooMany, ratePerSecond)
		c.Refuse(err)
		return err
	}
	return c.take(b)
}

// take takes a message.
func (c *Check) take(b Beat) error {
	c.mu.Lock()
	wake, err := c.takeLocked(&b, c.now())
	c.mu.Unlock()
	if err != nil {
		c.Refuse(err)
		return err
	}
	c.took.Add(1)
	if wake {
		c.wake()
	}
	return nil
}

// Refuse counts a message that could not be taken, and logs the first of its
// sort.
func (c *Check) Refuse(err error) {
	c.bad.Add(1)
	sort := "other"
	for _, known := range []error{ErrMalformed, ErrUnknown, ErrTooMany} {
		if errors.Is(err, known) {
			sort = known.Error()
		}
	}
	c.mu.Lock()
	told := c.told[sort]
	c.told[sort] = true
	c.mu.Unlock()
	if !told {
		c.log.Warn("heartbeat refused; others of this sort are only counted", "check", c.cfg.ID, "error", err)
	}
}

// takeLocked takes a message and reports whether the finding may have changed.
func (c *Check) takeLocked(b *Beat, now time.Time) (wake bool, err error) {
	c.advanceLocked(now)
	name, err := c.who(b)
	if err != nil {
		return false, err
	}
	if b.Status != nil {
		c.status = *b.Status
	}
	wake = c.announce(b, c.workers[name] != nil, now)
	if b.Mute && !b.Trigger {
		return wake, nil
	}
	from := &c.whole
	if name != "" {
		if c.workers[name] == nil {
			c.workers[name] = &voice{}
		}
		from = c.workers[name]
	}
	if b.Trigger {
		from.triggered = true
		return true, nil
	}
	wake = wake || !c.inTimeLocked(*from, now) || !c.inTimeLocked(c.whole, now)
	*from, c.whole.last = voice{last: now}, now
	c.rearmLocked(now)
	return wake, nil
}

// later is the later of two moments.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
