// Package schedule says when to look. It knows nothing of what a look is or
// where its finding goes.
package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"
)

// DefaultLimit is how many scheduled looks run at once, and how many on demand
// beside them. Chosen: a look holds up to three descriptors, and 2 x 128 x 3
// stays below the usual soft limit of 1,024 (getrlimit(2), RLIMIT_NOFILE).
const DefaultLimit = 128

// clockJump is how far the wall clock may leave the monotonic one before all
// slots are placed anew (JUDGING section 2: a vantage whose clock jumped).
const clockJump = 500 * time.Millisecond

// Job is a look that is due once per interval.
type Job struct {
	ID       string
	Interval time.Duration
}

// Look says why a look runs.
type Look struct {
	ID string
	// Slot is when it was due; zero if it was asked for.
	Slot time.Time
	// Trigger is what asked for it; empty if it was scheduled.
	Trigger string
	// Late is how long after its slot it began, waiting for a free place
	// included; zero if it was asked for.
	Late time.Duration
}

// Config is what a schedule depends on besides its jobs.
type Config struct {
	// Vantage spreads the same job over vantages: each has its own slots.
	Vantage string
	// Limit is how many scheduled looks run at once, and how many on demand
	// beside them. Zero means DefaultLimit.
	Limit int
}

// Stats counts since the start.
type Stats struct {
	Scheduled, OnDemand uint64 // looks begun
	// Coalesced counts requests answered by a look that was running already.
	Coalesced uint64
	// MissedBusy counts slots that came while the job's last look was still
	// running or waiting; MissedStalled those nobody was awake for.
	MissedBusy, MissedStalled uint64
	// LateSum and LateMax are over the scheduled looks.
	LateSum, LateMax time.Duration
	// ClockJumps counts steps of the wall clock of more than 0.5 s.
	ClockJumps uint64
	Running    int
}

// Scheduler runs looks at their slots and on demand. A job's look never
// overlaps itself. One goroutine keeps the time; each look has its own.
type Scheduler struct {
	vantage string
	look    func(context.Context, Look)
	wg      sync.WaitGroup // the running looks

	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	jobs  map[string]*job
	due   dueHeap
	slots lane // scheduled looks
	asked lane // looks on demand
	stats Stats
}

type job struct {
	Job
	phase time.Duration
	next  time.Time
	busy  bool // running, or waiting for a free place
}

// lane bounds looks of one sort; those over the limit wait in order.
type lane struct {
	limit, running int
	waiting        []waiting
}

type waiting struct {
	j    *job
	look Look
}

// New returns a scheduler that calls look, each time in a goroutine of its own,
// for every look. look must return soon after its context ends, and not panic.
func New(cfg Config, jobs []Job, look func(context.Context, Look)) (*Scheduler, error) {
	if cfg.Limit == 0 {
		cfg.Limit = DefaultLimit
	}
	if cfg.Limit < 0 || look == nil {
		return nil, fmt.Errorf("schedule: limit %d, look set: %t", cfg.Limit, look != nil)
	}
	s := &Scheduler{
		vantage: cfg.Vantage, look: look, jobs: make(map[string]*job, len(jobs)),
		slots: lane{limit: cfg.Limit}, asked: lane{limit: cfg.Limit},
	}
	for _, j := range jobs {
		switch {
		case j.ID == "" || s.jobs[j.ID] != nil:
			return nil, fmt.Errorf("schedule: job id %q empty or twice", j.ID)
		case j.Interval <= 0:
			return nil, fmt.Errorf("schedule: job %q: interval %s", j.ID, j.Interval)
		}
		added := &job{Job: j, phase: Phase(j.ID, cfg.Vantage, j.Interval)}
		s.jobs[j.ID] = added
		s.due = append(s.due, added)
	}
	return s, nil
}

// Phase is where in its interval a job's slots lie. It depends on names only,
// so that a restart keeps the slots and vantages do not look in step.
func Phase(id, vantage string, interval time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte{0})
	h.Write([]byte(vantage))
	phase := time.Duration(h.Sum64() % uint64(interval))
	if interval >= coarse*grid {
		phase -= phase % grid
	}
	return phase
}

// grid is what the slots of a job lie on whose interval is coarse times longer
// at least. Both chosen: a wake of the process costs more than a look inside it
// (cmd/bench, "agent"), and hundreds of checks then need ten a second.
const (
	grid   = 100 * time.Millisecond
	coarse = 10
)

// nextSlot returns the first slot after now: a whole number of intervals, and
// the phase, after the Unix epoch.
func (j *job) nextSlot(now time.Time) time.Time {
	since := now.UnixNano() - int64(j.phase)
	return time.Unix(0, since-since%int64(j.Interval)+int64(j.Interval)+int64(j.phase))
}

// Run runs looks until ctx ends and returns when all have ended. It may be
// called once.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	base := time.Now()
	timer := time.NewTimer(s.untilNext(base))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.slots.waiting, s.asked.waiting = nil, nil
			s.mu.Unlock()
			s.wg.Wait()
			return nil
		case <-timer.C:
		}
		now := time.Now()
		// Round(0) leaves the wall clock; Sub of two plain readings is monotonic.
		if off := now.Round(0).Sub(base.Round(0)) - now.Sub(base); off.Abs() > clockJump {
			s.replace(now)
		}
		base = now
		s.runDue(now)
		timer.Reset(s.untilNext(now))
	}
}

func (s *Scheduler) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return errors.New("schedule: Run called twice")
	}
	s.ctx = ctx
	s.placeLocked(time.Now())
	return nil
}

func (s *Scheduler) placeLocked(now time.Time) {
	for _, j := range s.due {
		j.next = j.nextSlot(now)
	}
	heap.Init(&s.due)
}

// replace places all slots anew after the wall clock jumped. What the jump
// passed over was never due, so it is not missed.
func (s *Scheduler) replace(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.ClockJumps++
	s.placeLocked(now)
}

// idle is how long the timer sleeps without jobs.
const idle = time.Hour

func (s *Scheduler) untilNext(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return idle
	}
	return max(s.due[0].next.Sub(now), 0)
}

// runDue begins a look for each job whose slot has come. Of several slots that
// have gone by, the newest is run and the others are missed.
func (s *Scheduler) runDue(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.due) > 0 && !s.due[0].next.After(now) {
		j := s.due[0]
		missed := now.Sub(j.next) / j.Interval
		s.stats.MissedStalled += uint64(missed)
		slot := j.next.Add(missed * j.Interval)
		j.next = slot.Add(j.Interval)
		heap.Fix(&s.due, 0)
		if j.busy {
			s.stats.MissedBusy++
			continue
		}
		s.beginLocked(&s.slots, j, Look{ID: j.ID, Slot: slot})
	}
}

// Answer is what became of a request for a look.
type Answer int

// The answers.
const (
	Unknown   Answer = iota // no such job
	Stopped                 // Run has not begun or is over
	Begun                   // a look begins now, or as soon as there is a free place
	Coalesced               // a look of the job runs already; it is the answer
)

// Ask asks for a look now. It does not wait for it.
func (s *Scheduler) Ask(id, trigger string) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	switch {
	case j == nil:
		return Unknown
	case s.ctx == nil || s.ctx.Err() != nil:
		return Stopped
	case j.busy:
		s.stats.Coalesced++
		return Coalesced
	}
	s.beginLocked(&s.asked, j, Look{ID: id, Trigger: trigger})
	return Begun
}

// Stats returns the counters.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Running = s.slots.running + s.asked.running
	return st
}

// beginLocked runs the look, or lines it up if its lane is full.
func (s *Scheduler) beginLocked(l *lane, j *job, look Look) {
	j.busy = true
	if l.running >= l.limit {
		l.waiting = append(l.waiting, waiting{j, look})
		return
	}
	s.goLocked(l, j, look)
}

func (s *Scheduler) goLocked(l *lane, j *job, look Look) {
	if s.ctx.Err() != nil {
		return
	}
	l.running++
	if look.Slot.IsZero() {
		s.stats.OnDemand++
	} else {
		look.Late = max(time.Since(look.Slot), 0)
		s.stats.Scheduled++
		s.stats.LateSum += look.Late
		s.stats.LateMax = max(s.stats.LateMax, look.Late)
	}
	s.wg.Go(func() {
		s.look(s.ctx, look)
		s.mu.Lock()
		defer s.mu.Unlock()
		j.busy = false
		l.running--
		if len(l.waiting) > 0 {
			w := l.waiting[0]
			l.waiting = l.waiting[1:]
			s.goLocked(l, w.j, w.look)
		}
	})
}
