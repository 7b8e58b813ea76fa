package workercheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// TestAsker_AsksEvery5sAndOnceWhenSuspicionBegins: one question in flight, and
// none for a look that comes early.
func TestAsker_AsksEvery5sAndOnceWhenSuspicionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := asker{ask: func(ctx context.Context) (Said, error) {
			asked++
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			return Said{Text: "all is well", OutOfBand: true}, ctx.Err()
		}}
		look := func(after time.Duration, suspicious bool) {
			time.Sleep(after)
			a.begin(time.Now(), suspicious)
			synctest.Wait()
		}
		for _, step := range []struct {
			name       string
			after      time.Duration
			suspicious bool
			asked      int
		}{
			{"first look", 0, false, 1},
			{"while the question is in flight", 100 * time.Millisecond, true, 1},
			{"suspicion began meanwhile and is no news", time.Second, true, 1},
			{"suspicion goes on", 2 * time.Second, true, 1},
			{"5s after the first", 2 * time.Second, true, 2},
			{"suspicion ends", time.Second, false, 2},
			{"suspicion begins", time.Second, true, 3},
		} {
			look(step.after, step.suspicious)
			if asked != step.asked {
				t.Errorf("%s: asked %d times, want %d", step.name, asked, step.asked)
			}
		}
		a.close()
		if got, want := a.sentence(time.Now()), "context canceled (0s ago)"; got != want {
			t.Errorf("after close: %q, want %q", got, want)
		}
	})
}

func TestAsker_Sentence(t *testing.T) {
	for name, c := range map[string]struct {
		said Said
		err  error
		want string
	}{
		"out of band": {Said{Text: "2 workers", OutOfBand: true}, nil, "2 workers (3s ago)"},
		"in band":     {Said{Text: "2 workers"}, nil, "2 workers (a worker answered, 3s ago)"},
		"no answer":   {Said{}, errors.New("ask it: no answer"), "ask it: no answer (3s ago)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := asker{ask: func(context.Context) (Said, error) { return c.said, c.err }}
			if got := a.sentence(time.Now()); got != "" {
				t.Errorf("%s: %q before the first answer", name, got)
			}
			a.begin(time.Now(), false)
			time.Sleep(3 * time.Second)
			if got := a.sentence(time.Now()); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		})
	}
}

func TestAsker_ACountOutlivesTwoFailuresInAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asker{ask: func(context.Context) (Said, error) { return Said{Accepted: 7, AcceptedKnown: true}, nil }}
		a.begin(time.Now(), false)
		synctest.Wait()
		time.Sleep(saidFor - 1)
		if n, ok := a.accepted(time.Now()); n != 7 || !ok {
			t.Errorf("accepted() = %d, %v, want 7, true", n, ok)
		}
		time.Sleep(time.Nanosecond)
		if _, ok := a.accepted(time.Now()); ok {
			t.Errorf("a count is still reported %s after it was told", saidFor)
		}
	})
}

func TestAsker_APanicIsAnError(t *testing.T) {
	var nobody asker
	nobody.begin(time.Now(), true)
	nobody.close()
	if got := nobody.sentence(time.Now()); got != "" {
		t.Errorf("nobody was asked and said %q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		a := asker{ask: func(context.Context) (Said, error) { panic("broken") }}
		a.begin(time.Now(), false)
		synctest.Wait()
		if got, want := a.sentence(time.Now()), "what the server says of itself made us panic: broken (0s ago)"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestLook_ShowsWhatTheServerSays beside what was seen, and in the sentence only
// if something is not as it should be.
func TestLook_ShowsWhatTheServerSays(t *testing.T) {
	c, src, now := newFake()
	answered := make(chan struct{}, 2)
	c.asker.ask = func(context.Context) (Said, error) {
		defer func() { answered <- struct{}{} }()
		return Said{Text: "2 workers, all well", OutOfBand: true, Accepted: 41, AcceptedKnown: true}, nil
	}
	look := func() checks.Finding {
		*now += time.Second
		src.snap.Sweep++
		src.snap.At = *now
		return c.Look(t.Context())
	}
	if f := look(); f.Workers.Source != "" {
		t.Errorf("before the first answer: %q", f.Workers.Source)
	}
	<-answered
	c.asker.wg.Wait()
	f := look()
	if f.Outcome != checks.Pass || !strings.HasPrefix(f.Workers.Source, "2 workers, all well (") || strings.Contains(f.Detail, "says") {
		t.Errorf("all serve: %s %q, %q", f.Outcome, f.Detail, f.Workers.Source)
	}
	if n, known := c.Accepted(); n != 41 || !known {
		t.Errorf("Accepted() = %d, %v, want 41, true", n, known)
	}
	src.snap.Workers[0].State, src.snap.Workers[1].State = checks.ProcStopped, checks.ProcStopped
	if f = look(); f.Outcome != checks.Fail || !strings.Contains(f.Detail, "; it says of itself: 2 workers, all well (") {
		t.Errorf("nobody serves: %s %q", f.Outcome, f.Detail)
	}
	<-answered // asked again, for suspicion began
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if f = look(); f.Workers.Source != "" {
		t.Errorf("after Close: %q", f.Workers.Source)
	}
}
