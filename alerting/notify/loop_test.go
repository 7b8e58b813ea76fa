package notify_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
)

// receiver records what reaches it and answers as its script says.
type receiver struct {
	name   string
	answer func(ctx context.Context, call int, n notify.Notice) error

	mu    sync.Mutex
	calls []string // as line writes them
}

func (r *receiver) Name() string { return r.name }

func (r *receiver) Notify(ctx context.Context, n notify.Notice) error {
	r.mu.Lock()
	call := len(r.calls)
	r.calls = append(r.calls, line(n))
	r.mu.Unlock()
	if r.answer == nil {
		return nil
	}
	return r.answer(ctx, call, n)
}

func (r *receiver) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.calls...)
}

func line(n notify.Notice) string {
	state := "resolved"
	if n.Firing {
		state = "firing"
	}
	return fmt.Sprintf("%s %s %s", n.Key(), n.Severity, state)
}

// doneLog records what the loop called done.
type doneLog struct {
	mu   sync.Mutex
	keys []string
}

func (d *doneLog) done(key, receiver string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = append(d.keys, key+" "+receiver)
}

func (d *doneLog) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.keys...)
}

// start runs a loop for the rest of the bubble; stop ends it and waits.
func start(t *testing.T, receivers ...notify.Notifier) (l *notify.Loop, d *doneLog, stop func()) {
	t.Helper()
	d = &doneLog{}
	l = notify.NewLoop(notify.Config{}, notify.Deps{Notifiers: receivers, Done: d.done})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, d, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func firing(incident string, step uint64) notify.Notice {
	return notify.Notice{Incident: incident, Step: step, Severity: notify.SeverityPage, Firing: true}
}

func resolved(incident string, step uint64) notify.Notice {
	return notify.Notice{Incident: incident, Step: step, Severity: notify.SeverityPage}
}

func ticket(n notify.Notice) notify.Notice { n.Severity = notify.SeverityTicket; return n }
func first(n notify.Notice) notify.Notice  { n.First = true; return n }

func wantSame(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestLoop_SlowReceiverDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &receiver{name: "slow", answer: func(ctx context.Context, _ int, _ notify.Notice) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		quick := &receiver{name: "quick"}
		l, d, stop := start(t, slow, quick)
		defer stop()

		l.Post(firing("a", 1))
		l.Post(firing("b", 1))
		synctest.Wait() // no time passes
		wantSame(t, "quick receiver saw", quick.seen(), []string{"a/1 page firing", "b/1 page firing"})
		wantSame(t, "done", d.seen(), []string{"a/1 quick", "b/1 quick"})
		wantSame(t, "slow receiver saw", slow.seen(), []string{"a/1 page firing"})
	})
}

func TestLoop_RetriesWithBackOffUntilAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gaps []time.Duration
		last := time.Now()
		r := &receiver{name: "r", answer: func(_ context.Context, call int, _ notify.Notice) error {
			gaps = append(gaps, time.Since(last))
			last = time.Now()
			if call < 10 {
				return errors.New("500 Internal Server Error")
			}
			return nil
		}}
		l, d, stop := start(t, r)
		l.Post(firing("a", 1))
		time.Sleep(2 * time.Minute)
		stop()

		wantSame(t, "done", d.seen(), []string{"a/1 r"})
		if len(gaps) != 11 {
			t.Fatalf("attempts: got %d, want 11", len(gaps))
		}
		limit := notify.DefaultFirstRetry
		for i, gap := range gaps[1:] {
			if gap < limit/2 || gap > limit {
				t.Errorf("wait before retry %d: got %s, want %s to %s", i+1, gap, limit/2, limit)
			}
			limit = min(2*limit, notify.DefaultLastRetry)
		}
		want := []notify.ReceiverStats{{Receiver: "r", Delivered: 1, Failed: 10, Retries: 10}}
		if diff := cmp.Diff(want, l.Stats()); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
	})
}

func TestLoop_PermanentErrorIsADeadLetterAndNeverDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{name: "r", answer: func(_ context.Context, _ int, n notify.Notice) error {
			if n.Incident == "bad" {
				return fmt.Errorf("post: %w", notify.Permanent(errors.New("400 Bad Request")))
			}
			return nil
		}}
		l, d, stop := start(t, r)
		l.Post(firing("bad", 1))
		l.Post(firing("good", 1))
		time.Sleep(time.Hour)
		stop()
		wantSame(t, "receiver saw", r.seen(), []string{"bad/1 page firing", "good/1 page firing"})
		wantSame(t, "done", d.seen(), []string{"good/1 r"})
		want := []notify.ReceiverStats{{Receiver: "r", Delivered: 1, Failed: 1, Dead: 1}}
		if diff := cmp.Diff(want, l.Stats()); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
	})
}

// TestLoop_LastStateWins blocks the receiver with a notice of another incident
// while the posts of each row pile up, then lets it go.
func TestLoop_LastStateWins(t *testing.T) {
	rows := []struct {
		name       string
		posts      [][]notify.Notice
		seen, done []string
		cancelled  uint64
	}{
		{
			name:  "a newer state supersedes an older one and both are done",
			posts: [][]notify.Notice{{first(firing("a", 1))}, {firing("a", 2)}},
			seen:  []string{"a/2 page firing"},
			done:  []string{"a/1 r", "a/2 r"},
		},
		{
			name:  "an older state posted late does not replace a newer one",
			posts: [][]notify.Notice{{firing("a", 2)}, {firing("a", 1)}},
			seen:  []string{"a/2 page firing"},
			done:  []string{"a/2 r", "a/1 r"},
		},
		{
			name:      "a resolve cancels a first firing that nobody heard of",
			posts:     [][]notify.Notice{{first(firing("a", 1))}, {firing("a", 2)}, {resolved("a", 3)}},
			seen:      []string{},
			done:      []string{"a/1 r", "a/2 r", "a/3 r"},
			cancelled: 1,
		},
		{
			name:  "a resolve is delivered when an earlier life may have delivered the firing",
			posts: [][]notify.Notice{{firing("a", 1)}, {resolved("a", 2)}},
			seen:  []string{"a/2 page resolved"},
			done:  []string{"a/1 r", "a/2 r"},
		},
		{
			name:  "a resolve alone is delivered",
			posts: [][]notify.Notice{{resolved("a", 2)}},
			seen:  []string{"a/2 page resolved"},
			done:  []string{"a/2 r"},
		},
		{
			name:      "an incident that opens again after its cancelled resolve is delivered",
			posts:     [][]notify.Notice{{first(firing("a", 1))}, {resolved("a", 2)}, {firing("a", 3)}},
			seen:      []string{"a/3 page firing"},
			done:      []string{"a/1 r", "a/2 r", "a/3 r"},
			cancelled: 0,
		},
		{
			name:  "page and ticket of one incident are two things, pages first",
			posts: [][]notify.Notice{{ticket(firing("a", 1))}, {ticket(firing("b", 1))}, {firing("b", 2)}, {firing("a", 2)}},
			seen:  []string{"b/2 page firing", "a/2 page firing", "a/1 ticket firing", "b/1 ticket firing"},
			done:  []string{"b/2 r", "a/2 r", "a/1 r", "b/1 r"},
		},
		{
			name:  "a key shared by page and ticket is done once, after both",
			posts: [][]notify.Notice{{ticket(resolved("a", 3)), resolved("a", 3)}, {resolved("b", 1)}},
			seen:  []string{"a/3 page resolved", "b/1 page resolved", "a/3 ticket resolved"},
			done:  []string{"b/1 r", "a/3 r"},
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				r := &receiver{name: "r", answer: func(_ context.Context, call int, _ notify.Notice) error {
					if call == 0 {
						<-gate
					}
					return nil
				}}
				l, d, stop := start(t, r)
				defer stop()
				l.Post(firing("plug", 1))
				synctest.Wait()
				for _, p := range row.posts {
					l.Post(p...)
				}
				close(gate)
				synctest.Wait()
				wantSame(t, "receiver saw", r.seen()[1:], row.seen)
				wantSame(t, "done", d.seen()[1:], row.done)
				s := l.Stats()[0]
				if s.Cancelled != row.cancelled || s.Queued != 0 {
					t.Errorf("Stats: got cancelled %d, queued %d; want %d, 0", s.Cancelled, s.Queued, row.cancelled)
				}
			})
		})
	}
}

func TestLoop_ResolveIsDeliveredAfterATriedFiringThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{name: "r", answer: func(_ context.Context, call int, _ notify.Notice) error {
			if call == 0 {
				return errors.New("reply lost") // it may well have arrived
			}
			return nil
		}}
		l, d, stop := start(t, r)
		l.Post(first(firing("a", 1)))
		synctest.Wait()
		l.Post(resolved("a", 2))
		time.Sleep(time.Second)
		stop()
		wantSame(t, "receiver saw", r.seen(), []string{"a/1 page firing", "a/2 page resolved"})
		wantSame(t, "done", d.seen(), []string{"a/1 r", "a/2 r"})
	})
}

func TestLoop_StatePostedDuringAnAttemptFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{name: "r", answer: func(context.Context, int, notify.Notice) error {
			time.Sleep(time.Second)
			return nil
		}}
		l, d, stop := start(t, r)
		l.Post(first(firing("a", 1)))
		synctest.Wait()
		l.Post(resolved("a", 2))
		time.Sleep(1500 * time.Millisecond)
		wantSame(t, "done after the first attempt", d.seen(), []string{"a/1 r"})
		time.Sleep(time.Minute)
		stop()
		wantSame(t, "receiver saw", r.seen(), []string{"a/1 page firing", "a/2 page resolved"})
		wantSame(t, "done", d.seen(), []string{"a/1 r", "a/2 r"})
	})
}

func TestLoop_NoticeAReceiverChokesOnDoesNotHoldUpTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{name: "r", answer: func(_ context.Context, _ int, n notify.Notice) error {
			if n.Incident == "a" {
				return errors.New("500")
			}
			return nil
		}}
		l, d, stop := start(t, r)
		defer stop()
		l.Post(firing("a", 1))
		l.Post(firing("b", 1))
		synctest.Wait()
		wantSame(t, "done", d.seen(), []string{"b/1 r"})
	})
}

func TestLoop_HungAttemptIsCutAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{name: "r", answer: func(ctx context.Context, call int, _ notify.Notice) error {
			if call == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		l, d, stop := start(t, r)
		l.Post(firing("a", 1))
		time.Sleep(notify.DefaultTimeout + notify.DefaultFirstRetry)
		stop()
		wantSame(t, "done", d.seen(), []string{"a/1 r"})
	})
}

func TestLoop_ShutdownLetsAnAttemptFinishWithinTheGrace(t *testing.T) {
	rows := []struct {
		name   string
		takes  time.Duration
		done   []string
		within time.Duration
	}{
		{"one that needs a second is accepted", time.Second, []string{"a/1 r"}, time.Second},
		{"one that hangs is cut and stays undone, without blame", time.Hour, []string{}, notify.DefaultGrace},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{name: "r", answer: func(ctx context.Context, _ int, _ notify.Notice) error {
					select {
					case <-time.After(row.takes):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}}
				l, d, stop := start(t, r)
				l.Post(firing("a", 1))
				synctest.Wait()
				begun := time.Now()
				stop()
				if took := time.Since(begun); took != row.within {
					t.Errorf("stop took %s, want %s", took, row.within)
				}
				wantSame(t, "done", d.seen(), row.done)
				if s := l.Stats()[0]; s.Failed != 0 {
					t.Errorf("Stats: failed %d at shutdown, want 0", s.Failed)
				}
				l.Post(firing("b", 1)) // must not block after the end
			})
		})
	}
}

// TestLoop_ConcurrentPostsAllEndDone is for the race detector: real goroutines,
// a receiver that fails every third time, and every key done exactly once.
func TestLoop_ConcurrentPostsAllEndDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const incidents, steps = 20, 20
		r := &receiver{name: "r", answer: func(_ context.Context, call int, _ notify.Notice) error {
			if call%3 == 0 {
				return errors.New("503")
			}
			return nil
		}}
		l, d, stop := start(t, r)
		var wg sync.WaitGroup
		for i := range incidents {
			wg.Go(func() {
				for s := range steps {
					l.Post(firing(fmt.Sprint("i", i), uint64(s)))
					l.Stats()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Hour)
		stop()
		count := map[string]int{}
		for _, k := range d.seen() {
			count[k]++
		}
		for i := range incidents {
			for s := range steps {
				if k := fmt.Sprintf("i%d/%d r", i, s); count[k] != 1 {
					t.Errorf("done %q: got %d times, want once", k, count[k])
				}
			}
		}
		if got := l.Stats()[0].Queued; got != 0 {
			t.Errorf("queued: got %d, want 0", got)
		}
	})
}

func TestPermanent_NilStaysNil(t *testing.T) {
	if err := notify.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil): got %v, want nil", err)
	}
	if notify.IsPermanent(errors.New("x")) {
		t.Error("IsPermanent of a plain error: got true, want false")
	}
}
