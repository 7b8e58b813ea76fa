package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
)

// View is what the engine knows, for people to look at.
type View struct {
	At       time.Time
	Ready    bool
	Services []ServiceView
	// Open holds the last step of each open incident; History the newest steps
	// of all, the oldest first.
	Open    []incident.Step
	History []incident.Step
}

// ServiceView is one service: its state and the evidence that is valid now.
type ServiceView struct {
	State    correlate.State
	Evidence []correlate.Ref
}

// View asks the engine's goroutine for its view. It fails if ctx ends first:
// the engine is not running, or waits for its journal.
func (e *Engine) View(ctx context.Context) (View, error) {
	reply := make(chan View, 1)
	select {
	case e.views <- reply:
		return <-reply, nil
	case <-ctx.Done():
		return View{}, context.Cause(ctx)
	}
}

func (e *Engine) view() View {
	v := View{At: time.Now(), Ready: e.isReady(), Open: e.book.Open(), History: append([]incident.Step(nil), e.history...)}
	for _, st := range e.judge.States() {
		v.Services = append(v.Services, ServiceView{State: st, Evidence: e.judge.Evidence(st.Scope.Service)})
	}
	return v
}

// Stats counts what the engine did since it started.
type Stats struct {
	Observed, Duplicate, Late, Unknown, Undecodable uint64
	Steps, Asks, AskErrors, AppendErrors            uint64
	// Unrecorded counts acceptances that could not be journalled at once.
	Unrecorded uint64
}

type stats struct {
	observed, duplicate, late, unknown, undecodable  atomic.Uint64
	steps, asks, askErrors, appendErrors, unrecorded atomic.Uint64
}

func (s *stats) observe(c correlate.Counts) {
	s.observed.Store(c.Observed)
	s.duplicate.Store(c.Duplicate)
	s.late.Store(c.Late)
	s.unknown.Store(c.Unknown)
}

// Stats returns the counters. It may be called at any time.
func (e *Engine) Stats() Stats {
	s := &e.stats
	return Stats{
		Observed: s.observed.Load(), Duplicate: s.duplicate.Load(), Late: s.late.Load(), Unknown: s.unknown.Load(),
		Undecodable: s.undecodable.Load(), Steps: s.steps.Load(), Asks: s.asks.Load(), AskErrors: s.askErrors.Load(),
		AppendErrors: s.appendErrors.Load(), Unrecorded: s.unrecorded.Load(),
	}
}
