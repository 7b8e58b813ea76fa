// Package engine is the only owner of a judge: evidence in, journal, notices
// out. It declares what it needs of the world as interfaces (ports.go); what
// evidence means it leaves to correlate, what an incident is to incident.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/alerting/notify"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// Config is data.
type Config struct {
	Policy policy.Policy
	// ConsoleURL is the address under which people reach the console; the links
	// in pages begin with it. May be empty.
	ConsoleURL string
}

// Deps are the live things an engine uses.
type Deps struct {
	Results Results
	Journal Journal
	Asker   Asker
	// Post hands the notices of one step to the delivery loop; they share a
	// key, which is accepted when all of them are. It must not block.
	Post func(...notify.Notice)
	Log  *slog.Logger
}

// Engine judges, records and tells. Run owns everything but the queues in and
// the published view.
type Engine struct {
	cfg  Config
	deps Deps

	messages chan Message
	accepted chan done
	views    chan chan View
	ready    chan struct{}
	stats    stats

	// The fields below are owned by the Run goroutine.
	judge   *correlate.Judge
	book    *incident.Book
	writer  string
	appends uint64
	last    uint64 // newest journal sequence
	history []incident.Step
	owed    map[string][]notify.Notice // resolves no receiver has accepted, by key
	startAt time.Time
}

// keptHistory is how many steps the view shows (chosen: a page of them).
const keptHistory = 200

// resolveFor is how long after its closing an incident's resolve is still
// re-sent after a restart (Prometheus' resolvedRetention, 15 min).
const resolveFor = 15 * time.Minute

// New returns an engine for a policy. It fails if the policy is not valid.
func New(cfg Config, deps Deps) (*Engine, error) {
	judge, err := correlate.New(cfg.Policy)
	if err != nil {
		return nil, err
	}
	return &Engine{
		cfg: cfg, deps: deps, judge: judge, book: incident.NewBook(cfg.Policy), writer: rand.Text(),
		messages: make(chan Message, 64), accepted: make(chan done, 256),
		views: make(chan chan View), ready: make(chan struct{}), owed: map[string][]notify.Notice{},
	}, nil
}

// Ready is closed when the engine has caught up: the journal is folded, every
// earlier writer fenced, recent evidence judged again, every open alert posted.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Accepted tells the engine that a receiver accepted the notice with this key.
// It does not wait for the journal.
func (e *Engine) Accepted(key, receiver string) {
	select {
	case e.accepted <- done{key, receiver}:
	default: // not recorded: after a restart the resolve is sent once more under the same key
		e.stats.unrecorded.Add(1)
	}
}

// Run judges until ctx ends, and then returns nil. It returns ErrFenced when
// another engine took over, and other errors when the journal cannot be read.
// When it returns nothing of it still runs.
func (e *Engine) Run(ctx context.Context) error {
	caller := ctx
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	e.startAt = time.Now()
	if err := e.takeOver(ctx); err != nil {
		return ignoreCancel(caller, err)
	}
	target, newest, err := e.deps.Results.Last(ctx)
	if err != nil {
		return ignoreCancel(caller, fmt.Errorf("read the newest evidence: %w", err))
	}
	for _, s := range e.book.Open() {
		e.judge.Resume(s.State)
	}
	since := e.startAt.Add(-e.horizon())
	reader := make(chan error, 1)
	go func() {
		reader <- e.deps.Results.Read(ctx, since, func(m Message) error {
			select {
			case e.messages <- m:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	err = e.replay(ctx, target, newest.Before(since), reader)
	if err == nil {
		err = e.judgeOn(ctx, reader)
	}
	if !errors.Is(err, errReader) {
		cancel()
		<-reader
	}
	return ignoreCancel(caller, err)
}

// errReader marks that the reader ended first, so that nobody waits for it.
var errReader = errors.New("read evidence")

// ignoreCancel turns the end of the caller's context into a clean return.
func ignoreCancel(caller context.Context, err error) error {
	if caller.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// horizon is how far back evidence can still matter to a verdict: four
// intervals of the slowest check (validity is 2.5), at least two minutes.
func (e *Engine) horizon() time.Duration {
	h := 2 * time.Minute
	for _, s := range e.cfg.Policy.Services {
		for _, c := range s.Checks {
			h = max(h, 4*c.Interval)
		}
	}
	return h
}

// replay judges the evidence before target again without taking steps; the
// journal holds those already. Then it compares the verdicts with the open
// incidents, posts what is open or owed, and is ready.
func (e *Engine) replay(ctx context.Context, target uint64, nothing bool, reader <-chan error) error {
	for seen := uint64(0); target > 0 && !nothing && seen < target; {
		select {
		case m := <-e.messages:
			e.observe(m)
			seen = m.Cursor
		case err := <-reader:
			return fmt.Errorf("%w: %w", errReader, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	now := e.now()
	e.judge.Advance(now)
	e.judge.Asks() // of the past
	for _, s := range e.book.Open() {
		e.post(s, "re-posted after a restart of the core", false)
	}
	for _, key := range slices.Sorted(maps.Keys(e.owed)) {
		e.deps.Post(e.owed[key]...)
	}
	steps := e.book.Retire(now)
	for _, st := range e.judge.States() {
		steps = append(steps, e.book.Observe(st, now)...)
	}
	if err := e.commit(ctx, steps); err != nil {
		return err
	}
	close(e.ready)
	e.deps.Log.Info("engine ready", "journal", e.last, "open_incidents", len(e.book.Open()), "took", time.Since(e.startAt))
	return nil
}

// judgeOn is the engine's life after the start.
func (e *Engine) judgeOn(ctx context.Context, reader <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(e.pause())
		var steps []incident.Step
		select {
		case m := <-e.messages:
			steps = e.observe(m)
		case <-timer.C:
			select {
			case m := <-e.messages: // evidence that waits is older than the clock
				steps = e.observe(m)
			default:
				steps = e.apply(e.judge.Advance(e.now()))
				steps = append(steps, e.book.Advance(e.judge.Now())...)
			}
		case d := <-e.accepted:
			if err := e.recordDone(ctx, d); err != nil {
				return err
			}
			continue
		case reply := <-e.views:
			reply <- e.view()
			continue
		case err := <-reader:
			return fmt.Errorf("%w: %w", errReader, err)
		}
		if err := e.commit(ctx, steps); err != nil {
			return err
		}
		e.ask()
	}
}

// now is the judge's now for things that happen by time alone: the core's
// clock, never behind evidence already judged.
func (e *Engine) now() time.Time {
	now := time.Now()
	if j := e.judge.Now(); j.After(now) {
		return j
	}
	return now
}

// pause is how long nothing happens by time alone.
func (e *Engine) pause() time.Duration {
	d := time.Minute
	for _, next := range []func() (time.Time, bool){e.judge.NextDeadline, e.book.NextDeadline} {
		if t, ok := next(); ok {
			d = min(d, time.Until(t))
		}
	}
	return max(d, 0)
}

// observe judges every piece of evidence of a message and returns the steps.
func (e *Engine) observe(m Message) []incident.Step {
	from := evidence.Vantage{Place: m.Place, Name: m.Vantage}
	batch, err := evidence.Decode(from, m.Body)
	if err != nil {
		e.stats.undecodable.Add(1)
		e.deps.Log.Warn("refuse evidence", "cursor", m.Cursor, "err", err)
		return nil
	}
	now := m.At
	if j := e.judge.Now(); j.After(now) {
		now = j
	}
	var steps []incident.Step
	for _, ev := range batch {
		changes := e.judge.Observe(evidence.Stored{Evidence: ev, At: now, Cursor: m.Cursor}, now)
		if e.isReady() {
			steps = append(steps, e.apply(changes)...)
		}
	}
	if e.isReady() {
		steps = append(steps, e.book.Advance(now)...)
	}
	e.stats.observe(e.judge.Counts())
	return steps
}

func (e *Engine) isReady() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

func (e *Engine) apply(changes []correlate.Change) []incident.Step {
	var steps []incident.Step
	for _, c := range changes {
		level := slog.LevelDebug
		if c.From != c.To.Verdict {
			level = slog.LevelInfo
		}
		e.deps.Log.Log(context.Background(), level, "verdict", "service", c.To.Scope.Service, "region", c.To.Scope.Region, "from", c.From, "to", c.To.Verdict,
			"cause", c.To.Cause, "rule", c.To.Rule, "outside_failing", c.To.Tally.Failing)
		steps = append(steps, e.book.Observe(c.To, c.At)...)
	}
	return steps
}

// commit appends the steps of one judge step and then tells the receivers: what
// was not recorded is not told.
func (e *Engine) commit(ctx context.Context, steps []incident.Step) error {
	if len(steps) == 0 {
		return nil
	}
	if err := e.append(ctx, kindSteps, record{Steps: steps}); err != nil {
		return err
	}
	for _, s := range steps {
		e.remember(s)
		e.deps.Log.Info("incident", "id", s.Incident, "step", s.N, "kind", s.Kind, "reason", s.Reason, "sentence", s.State.Sentence)
		e.post(s, s.Reason, s.Kind == incident.Opened)
	}
	e.stats.steps.Add(uint64(len(steps)))
	return nil
}

func (e *Engine) remember(s incident.Step) {
	e.history = append(e.history, s)
	if n := len(e.history) - keptHistory; n > 0 {
		e.history = e.history[n:]
	}
}

func (e *Engine) post(s incident.Step, reason string, first bool) {
	notices := e.notices(s, reason)
	for i := range notices {
		notices[i].First = first
	}
	if s.Kind == incident.Closed {
		e.owed[notices[0].Key()] = notices
	}
	e.deps.Post(notices...)
}

func (e *Engine) ask() {
	for _, a := range e.judge.Asks() {
		if err := e.deps.Asker.Ask(a.Vantage.Place, a.Vantage.Name, a.Check, a.Trigger); err != nil {
			e.stats.askErrors.Add(1)
			e.deps.Log.Warn("ask for a look", "vantage", a.Vantage, "check", a.Check, "err", err)
			continue
		}
		e.stats.asks.Add(1)
	}
}
