// Package vantage is the life of a prober or an agent: jobs in, looks, evidence
// out. It knows no kind, no bus and no verdict.
package vantage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/schedule"
)

// Job is a check with its times.
type Job struct {
	// ID is the check's, "service/name".
	ID       string
	Kind     checks.Kind
	Check    checks.Check
	Interval time.Duration
	Timeout  time.Duration
}

// Config says who we are.
type Config struct {
	Vantage evidence.Vantage
	Kind    evidence.VantageKind
	// Boot names this life of the process; nobody else may be able to guess it,
	// for message ids are made from it. Empty means NewBoot().
	Boot string
}

// NewBoot returns an unguessable name: 128 bits from crypto/rand in hex.
func NewBoot() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
	return hex.EncodeToString(b[:])
}

// Publisher sends a message to the core.
type Publisher interface {
	// Publish returns nil once the core has stored the message, or had stored
	// one with the same id before. After an error the vantage sends the same
	// evidence again under the same id. It returns soon after ctx ends.
	Publish(ctx context.Context, kind checks.Kind, msgID string, body []byte) error
}

// Ask asks for a look now. Trigger is what for; empty means "ask".
type Ask struct{ Check, Trigger string }

// Deps are the live things around a vantage.
type Deps struct {
	Publish Publisher
	// Changed has a value whenever something on the host changed. Only an agent
	// reads it; may be nil.
	Changed <-chan struct{}
	// Asks may be nil. Closing it ends the asking.
	Asks <-chan Ask
	Log  *slog.Logger
}

// TriggerHost is the trigger of looks made because the host changed.
const TriggerHost = "host"

// errTimeout is the cause of a look's context that ran out of time.
type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string { return fmt.Sprintf("look took longer than %s", e.after) }
func (e errTimeout) Timeout() bool { return true }

// Vantage runs jobs and publishes what they find.
type Vantage struct {
	kind    evidence.VantageKind
	jobs    map[string]*job
	inside  []*job // in the order given
	changed <-chan struct{}
	asks    <-chan Ask
	log     *slog.Logger
	sched   *schedule.Scheduler
	out     *outbox

	looks   [checks.Fail + 1]atomic.Uint64 // by outcome
	panics  atomic.Uint64
	unknown atomic.Uint64
}

type job struct {
	Job
	// looking holds a value while the check looks.
	looking chan struct{}
	told    bool // its panic has been logged; looking guards it
}

// New returns a vantage, or what is wrong with its jobs.
func New(cfg Config, jobs []Job, deps Deps) (*Vantage, error) {
	switch {
	case cfg.Vantage.Place == "" || cfg.Vantage.Name == "":
		return nil, fmt.Errorf("vantage %q: place and name must be set", cfg.Vantage)
	case cfg.Kind != evidence.Prober && cfg.Kind != evidence.Agent:
		return nil, fmt.Errorf("vantage %s: kind %q is neither prober nor agent", cfg.Vantage, cfg.Kind)
	case deps.Publish == nil || deps.Log == nil:
		return nil, fmt.Errorf("vantage %s: publisher and log must be set", cfg.Vantage)
	}
	if cfg.Boot == "" {
		cfg.Boot = NewBoot()
	}
	v := &Vantage{
		kind: cfg.Kind, jobs: make(map[string]*job, len(jobs)),
		changed: deps.Changed, asks: deps.Asks, log: deps.Log,
		out: newOutbox(cfg.Vantage, cfg.Boot, deps.Publish, deps.Log),
	}
	slots := make([]schedule.Job, 0, len(jobs))
	for _, j := range jobs {
		if j.Check == nil || j.Kind == "" || j.Timeout <= 0 {
			return nil, fmt.Errorf("vantage %s: job %q: check set: %t, kind %q, timeout %s", cfg.Vantage, j.ID, j.Check != nil, j.Kind, j.Timeout)
		}
		added := &job{Job: j, looking: make(chan struct{}, 1)}
		v.jobs[j.ID] = added
		if j.Kind.Inside() {
			v.inside = append(v.inside, added)
		}
		slots = append(slots, schedule.Job{ID: j.ID, Interval: j.Interval})
	}
	var err error
	v.sched, err = schedule.New(schedule.Config{Vantage: cfg.Vantage.String()}, slots, v.onSlot)
	if err != nil {
		return nil, fmt.Errorf("vantage %s: %w", cfg.Vantage, err)
	}
	return v, nil
}

// Run looks and publishes until ctx ends. Then it waits for the looks that run,
// sends what is there for at most one second, and returns nil.
func (v *Vantage) Run(ctx context.Context) error {
	// Sending outlives looking: the last findings go too.
	sendCtx, stopSending := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopSending(nil)
	closing := make(chan struct{})
	var sender, lookers sync.WaitGroup
	sender.Go(func() { v.out.run(sendCtx, closing) })
	lookers.Go(func() { v.listen(ctx) })
	err := v.sched.Run(ctx)
	lookers.Wait()

	close(closing)
	last := time.AfterFunc(lastFlush, func() { stopSending(errors.New("shutting down")) })
	sender.Wait()
	last.Stop()
	if n := v.out.waitingNow(); n > 0 {
		v.log.Warn("shut down with unsent evidence", "pieces", n)
	}
	return err
}

// listen turns host changes and asks into looks.
func (v *Vantage) listen(ctx context.Context) {
	changed, asks := v.changed, v.asks
	if v.kind != evidence.Agent {
		changed = nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-changed:
			if !open {
				changed = nil
				continue
			}
			v.onChange(ctx)
		case ask, open := <-asks:
			if !open {
				asks = nil
				continue
			}
			if ask.Trigger == "" {
				ask.Trigger = "ask"
			}
			if v.sched.Ask(ask.Check, ask.Trigger) == schedule.Unknown {
				v.unknown.Add(1)
				v.log.Debug("asked for a look we do not have", "check", ask.Check, "trigger", ask.Trigger)
			}
		}
	}
}

// onChange looks at all inside jobs at once and sends what is urgent. Their
// looks read a snapshot in this process, so they run here one after the other.
func (v *Vantage) onChange(ctx context.Context) {
	for _, j := range v.inside {
		v.lookOnce(ctx, j, evidence.Evidence{Trigger: TriggerHost})
	}
}

// onSlot is called by the schedule, for slots and for looks on demand.
func (v *Vantage) onSlot(ctx context.Context, l schedule.Look) {
	v.lookOnce(ctx, v.jobs[l.ID], evidence.Evidence{Slot: l.Slot, Trigger: l.Trigger})
}

// lookOnce looks within the job's timeout and hands the finding on as e; after a
// host change only an urgent one. It is numbered before the next look of the
// check may begin: an older snapshot must not get the higher sequence.
func (v *Vantage) lookOnce(ctx context.Context, j *job, e evidence.Evidence) {
	j.looking <- struct{}{}
	defer func() { <-j.looking }()
	lookCtx, cancel := context.WithTimeoutCause(ctx, j.Timeout, errTimeout{j.Timeout})
	if e.Trigger != "" && e.Trigger != TriggerHost {
		lookCtx = checks.WithAsked(lookCtx)
	}
	defer cancel()
	f := v.guardedLook(lookCtx, j)
	if ctx.Err() != nil && f.Outcome != checks.Pass {
		// We cut it short: whatever it says of the target is our doing.
		f = checks.BlindFinding(checks.ReasonShuttingDown, "the look was cut short by our own shutdown")
	}
	v.looks[min(f.Outcome, checks.Fail)].Add(1)
	v.log.Debug("looked", "check", j.ID, "outcome", f.Outcome, "reason", f.Reason, "detail", f.Detail, "took", f.Duration)
	if e.Trigger == TriggerHost && !f.Urgent {
		return
	}
	e.Check, e.Kind, e.Finding = j.ID, j.Kind, f
	v.out.put(e, time.Now())
}

// guardedLook turns a panic, a bug of ours, into a blind finding, and logs the
// first of each check.
func (v *Vantage) guardedLook(ctx context.Context, j *job) (f checks.Finding) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		v.panics.Add(1)
		if !j.told {
			j.told = true
			v.log.Error("a look panicked; please report this", "check", j.ID, "kind", j.Kind, "panic", p, "stack", string(debug.Stack()))
		}
		f = checks.BlindFinding(checks.ReasonPanic, fmt.Sprintf("the %s check panicked: %v", j.Kind, p))
	}()
	return j.Check.Look(ctx)
}

// Stats counts since the start.
type Stats struct {
	// Looks counts finished looks by outcome, those of host changes included.
	Looks map[checks.Outcome]uint64
	// Panics counts looks that panicked; they are among the blind.
	Panics uint64
	// UnknownAsks counts asks for checks we do not have.
	UnknownAsks uint64
	Schedule    schedule.Stats
	Outbox      OutboxStats
}

// Stats returns the counters.
func (v *Vantage) Stats() Stats {
	s := Stats{
		Looks: make(map[checks.Outcome]uint64, len(v.looks)), Panics: v.panics.Load(), UnknownAsks: v.unknown.Load(),
		Schedule: v.sched.Stats(), Outbox: v.out.stats(),
	}
	for o := range v.looks {
		s.Looks[checks.Outcome(o)] = v.looks[o].Load()
	}
	return s
}
