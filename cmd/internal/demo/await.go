package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

func (s *stage) view(ctx context.Context) engine.View {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := s.core.View(ctx)
	if err != nil {
		return engine.View{Services: make([]engine.ServiceView, 1)}
	}
	return v
}

// allGreen: the service is up, every place saw it pass, and the agent has
// learnt how many workers there are.
func (s *stage) allGreen(v engine.View) bool {
	st := v.Services[0]
	inside, outside := 0, 0
	for _, e := range st.Evidence {
		if e.Outcome != checks.Pass {
			return false
		}
		if e.Side == correlate.Inside {
			inside++
		} else {
			outside++
		}
	}
	return st.State.Verdict == correlate.Up && inside == 2 && outside == 3
}

func (s *stage) await(ctx context.Context, limit time.Duration, what string, ok func(engine.View) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if ok(s.view(ctx)) {
			return nil
		}
		if err := s.pause(ctx, look); err != nil {
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
	}
}

// awaitCall waits until the pager received an alert of the severity, or the
// resolve of one.
func (s *stage) awaitCall(ctx context.Context, limit time.Duration, severity string, firing bool) (pager.Call, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("waited %s", limit)) })
	defer timer.Stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-s.core.Failed():
			cancel(err)
		case <-done:
		}
	}()
	return s.pager.AwaitOf(ctx, severity, firing)
}

func (s *stage) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-s.core.Failed():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
