package workercheck

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Said is what a server said of itself when it was asked (checks/serverstatus
// knows how). It raises confidence and decides nothing.
type Said struct {
	Text string // one sentence
	// Accepted counts the connections it took, by its own account, if
	// AcceptedKnown.
	Accepted      uint64
	AcceptedKnown bool
	// OutOfBand: somebody else than the workers answered.
	OutOfBand bool
}

const (
	// askEvery is the time from one question to the next. Chosen: the default
	// interval of inside looks; each costs the server a connection.
	askEvery = 5 * time.Second
	// saidFor is how long a count is reported after it was told. Chosen: two
	// questions may fail.
	saidFor = 3 * askEvery
)

// asker asks a server about itself, off the path of a look: one question in
// flight. Its zero value asks nobody.
type asker struct {
	ask func(context.Context) (Said, error)

	wg     sync.WaitGroup
	cancel context.CancelFunc // ends the question in flight

	mu      sync.Mutex // guards the fields below
	asking  bool
	alarmed bool      // at the last call of begin
	began   time.Time // of the last question
	ended   time.Time // of the last answer; zero before the first
	said    Said
	err     error
}

// begin asks if it is time: askEvery after the last question, or at once when
// suspicion begins. It does not wait.
func (a *asker) begin(now time.Time, suspicious bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rises := suspicious && !a.alarmed
	a.alarmed = suspicious
	if a.ask == nil || a.asking || !rises && !a.began.IsZero() && now.Sub(a.began) < askEvery {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.asking, a.began, a.cancel = true, now, cancel
	a.wg.Go(func() {
		defer cancel()
		said, err := a.safely(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asking, a.ended, a.said, a.err = false, time.Now(), said, err
	})
}

// safely asks; what the answer breaks in us is an error.
func (a *asker) safely(ctx context.Context) (said Said, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("what the server says of itself made us panic: %v", p)
		}
	}()
	return a.ask(ctx)
}

// sentence is the last answer with its age; empty before the first.
func (a *asker) sentence(now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended.IsZero() {
		return ""
	}
	age := max(now.Sub(a.ended), 0).Round(time.Second)
	switch {
	case a.err != nil:
		return fmt.Sprintf("%s (%s ago)", a.err, age)
	case !a.said.OutOfBand:
		return fmt.Sprintf("%s (a worker answered, %s ago)", a.said.Text, age)
	}
	return fmt.Sprintf("%s (%s ago)", a.said.Text, age)
}

// accepted is the last count, unless it is unknown or old.
func (a *asker) accepted(now time.Time) (uint64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := !a.ended.IsZero() && a.err == nil && a.said.AcceptedKnown && now.Sub(a.ended) < saidFor
	return a.said.Accepted, known
}

// close ends the question in flight and waits for it. begin must not be called
// after it.
func (a *asker) close() {
	a.mu.Lock()
	if a.cancel != nil {
		a.cancel()
	}
	a.mu.Unlock()
	a.wg.Wait()
}
