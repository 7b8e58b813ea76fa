package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
)

// The patience with a store that takes nothing. A full disk that was freed again
// does not mend an embedded server that met it: only a new start does.
const (
	// notReadyAfter is when /-/ready says so. Chosen: longer than a slow fsync.
	notReadyAfter = 2 * time.Second
	// giveUpAfter is when the core ends, for a supervisor to start it anew.
	// Chosen: an in-process hub is never away; this is no restart of it.
	giveUpAfter = 15 * time.Second
)

// storeWatch knows since when the store has refused everything. Every write of
// this process tells it how it went; there is always one, since the agent and the
// probers report at each interval and try again until they are heard.
type storeWatch struct {
	fail func(error)

	// mu guards the field below.
	mu    sync.Mutex
	since time.Time // of the first of an unbroken run of refusals; zero while it takes
}

// note takes in how a write went, and returns its error.
func (s *storeWatch) note(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrFenced) {
		return err // our own stop; a store that works and says no
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	case now.Sub(s.since) >= giveUpAfter:
		s.fail(fmt.Errorf("the store has refused everything for %s; start again once the cause is mended (disk full?): %w",
			now.Sub(s.since).Round(time.Second), err))
	}
	return err
}

// refusing is for how long the store has refused everything; zero if it does not.
func (s *storeWatch) refusing() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}
