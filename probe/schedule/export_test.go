package schedule

import (
	"context"
	"time"
)

// Begin and Wake are the halves of Run, for a test to sleep between them as a
// stopped process would.
func (s *Scheduler) Begin(ctx context.Context) error { return s.begin(ctx) }
func (s *Scheduler) Wake(now time.Time)              { s.runDue(now) }
func (s *Scheduler) ClockJumped(now time.Time)       { s.replace(now) }
