package schedule_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/probe/schedule"
)

// recorder notes each look and how it is made to last.
type recorder struct {
	lasts time.Duration

	mu    sync.Mutex // guards the fields below
	looks []schedule.Look
	began []time.Time
	now   int
	most  int
}

func (r *recorder) look(ctx context.Context, l schedule.Look) {
	r.mu.Lock()
	r.looks = append(r.looks, l)
	r.began = append(r.began, time.Now())
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	select {
	case <-time.After(r.lasts):
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
}

// run runs a scheduler in a bubble until the test function returns.
func run(t *testing.T, r *recorder, cfg schedule.Config, jobs []schedule.Job, f func(*schedule.Scheduler)) {
	t.Helper()
	s, err := schedule.New(cfg, jobs, r.look)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	f(s)
	synctest.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if r.now != 0 {
		t.Errorf("%d looks still run after Run returned", r.now)
	}
}

func TestSlots_LieAtThePhaseAndOneIntervalApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 7 * time.Second
		r := &recorder{}
		run(t, r, schedule.Config{Vantage: "par/p1"}, []schedule.Job{{"web/http", interval}}, func(*schedule.Scheduler) {
			time.Sleep(10 * interval)
		})
		if len(r.looks) != 10 {
			t.Fatalf("%d looks in 10 intervals, want 10", len(r.looks))
		}
		for i, l := range r.looks {
			if l.Slot.UnixNano()%int64(interval) != int64(schedule.Phase("web/http", "par/p1", interval)) {
				t.Errorf("slot %s is not at the phase", l.Slot)
			}
			if !r.began[i].Equal(l.Slot) || l.Late != 0 {
				t.Errorf("look of slot %s began at %s, late %s", l.Slot, r.began[i], l.Late)
			}
			if i > 0 && l.Slot.Sub(r.looks[i-1].Slot) != interval {
				t.Errorf("slot %s after %s", l.Slot, r.looks[i-1].Slot)
			}
		}
	})
}

func TestSlots_AreKeptOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := []schedule.Job{{"web/http", 5 * time.Second}}
		var slots []time.Time
		for range 3 {
			r := &recorder{}
			run(t, r, schedule.Config{Vantage: "par/p1"}, jobs, func(*schedule.Scheduler) { time.Sleep(10 * time.Second) })
			for _, l := range r.looks {
				slots = append(slots, l.Slot)
			}
			time.Sleep(1234 * time.Millisecond)
		}
		for _, s := range slots {
			if d := s.Sub(slots[0]) % (5 * time.Second); d != 0 {
				t.Errorf("slot %s is %s off", s, d)
			}
		}
	})
}

func TestPhase_SpreadsJobsAndVantages(t *testing.T) {
	const interval, buckets = time.Second, 10
	var n [buckets]int
	for i := range 1000 {
		n[schedule.Phase(fmt.Sprintf("service-%d/http", i), "par/p1", interval)*buckets/interval]++
	}
	for i, n := range n {
		// 1,000 names in 10 buckets: 100 +- 9.5 each; 4 sigma is 62 to 138.
		if n < 62 || n > 138 {
			t.Errorf("bucket %d has %d of 1000 phases, want about 100", i, n)
		}
	}
	if a, b := schedule.Phase("web/http", "par/p1", interval), schedule.Phase("web/http", "par/p2", interval); a == b {
		t.Errorf("two vantages look in step at %s", a)
	}
}

func TestRun_ALookNeverOverlapsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{lasts: 2500 * time.Millisecond}
		run(t, r, schedule.Config{}, []schedule.Job{{"slow", time.Second}}, func(s *schedule.Scheduler) {
			time.Sleep(30 * time.Second)
			st := s.Stats()
			if st.Scheduled != 10 || st.MissedBusy != 20 || st.MissedStalled != 0 {
				t.Errorf("stats %+v, want 10 looks and 20 slots missed busy", st)
			}
		})
		if r.most != 1 {
			t.Errorf("%d looks of one job ran at once", r.most)
		}
	})
}

func TestRun_SlotsOfAStalledProcessAreCountedAndNotMadeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s, err := schedule.New(schedule.Config{}, []schedule.Job{{"web", time.Second}}, r.look)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + 300*time.Millisecond)
		s.Wake(time.Now())
		synctest.Wait()
		st := s.Stats()
		if len(r.looks) != 1 || st.Scheduled+st.MissedStalled < 10 || st.Scheduled != 1 {
			t.Fatalf("after a stall of 10.3 s: %d looks, %+v, want 1 look and 9 or 10 missed", len(r.looks), st)
		}
		if late := r.looks[0].Late; late < 0 || late >= time.Second || st.LateMax != late {
			t.Errorf("the look after the stall is %s late (most %s), want under one interval", late, st.LateMax)
		}
		s.Wake(time.Now())
		if again := s.Stats(); again != st {
			t.Errorf("waking twice: %+v, then %+v", st, again)
		}
	})
}

func TestRun_AClockThatJumpedBackDoesNotSilenceTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s, err := schedule.New(schedule.Config{}, []schedule.Job{{"web", time.Second}}, r.look)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := time.Now().Add(-time.Hour)
		s.ClockJumped(back)
		s.Wake(back.Add(time.Second))
		synctest.Wait()
		st := s.Stats()
		if len(r.looks) != 1 || st.ClockJumps != 1 || st.MissedStalled != 0 {
			t.Errorf("one interval after the jump: %d looks, %+v, want one look and nothing missed", len(r.looks), st)
		}
	})
}

func TestAsk_RunsAtOnceWithItsTriggerAndNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{lasts: time.Second}
		run(t, r, schedule.Config{}, []schedule.Job{{"web", time.Hour}}, func(s *schedule.Scheduler) {
			asked := time.Now()
			if got := s.Ask("web", "suspicion"); got != schedule.Begun {
				t.Errorf("Ask: %v, want Begun", got)
			}
			if got := s.Ask("web", "again"); got != schedule.Coalesced {
				t.Errorf("Ask while one runs: %v, want Coalesced", got)
			}
			if got := s.Ask("nothing", "x"); got != schedule.Unknown {
				t.Errorf("Ask of an unknown job: %v, want Unknown", got)
			}
			synctest.Wait()
			if d := cmp.Diff([]schedule.Look{{ID: "web", Trigger: "suspicion"}}, r.looks); d != "" {
				t.Errorf("looks (-want +got):\n%s", d)
			}
			if !r.began[0].Equal(asked) {
				t.Errorf("asked at %s, began at %s", asked, r.began[0])
			}
			time.Sleep(2 * time.Second)
			if got := s.Ask("web", "later"); got != schedule.Begun {
				t.Errorf("Ask after the first ended: %v, want Begun", got)
			}
			if st := s.Stats(); st.OnDemand != 2 || st.Coalesced != 1 || st.Running != 1 {
				t.Errorf("stats %+v, want 2 on demand, 1 coalesced, 1 running", st)
			}
		})
	})
}

func TestAsk_OutsideOfRunIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := schedule.New(schedule.Config{}, []schedule.Job{{"web", time.Second}}, (&recorder{}).look)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Ask("web", "x"); got != schedule.Stopped {
			t.Errorf("Ask before Run: %v, want Stopped", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := s.Ask("web", "x"); got != schedule.Stopped {
			t.Errorf("Ask after Run: %v, want Stopped", got)
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("second Run: no error")
		}
	})
}

func TestLimit_BoundsLooksAtOnceAndTheRestWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{lasts: 100 * time.Millisecond}
		var jobs []schedule.Job
		for i := range 40 {
			jobs = append(jobs, schedule.Job{ID: fmt.Sprint("job-", i), Interval: time.Second})
		}
		run(t, r, schedule.Config{Limit: 3}, jobs, func(s *schedule.Scheduler) {
			time.Sleep(10 * time.Second)
			st := s.Stats()
			if st.LateMax == 0 || st.MissedBusy == 0 {
				t.Errorf("stats %+v: 40 looks of 0.1 s a second in 3 places are neither late nor missed", st)
			}
		})
		if r.most != 3 {
			t.Errorf("%d looks at once, want 3", r.most)
		}
		ran := map[string]bool{}
		for _, l := range r.looks {
			ran[l.ID] = true
		}
		if len(ran) != len(jobs) {
			t.Errorf("%d of %d jobs ever ran", len(ran), len(jobs))
		}
	})
}

func TestLimit_HangingScheduledLooksDoNotHoldUpOnDemandOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{lasts: time.Hour}
		jobs := []schedule.Job{{"a", time.Second}, {"b", time.Second}, {"c", 24 * time.Hour}}
		run(t, r, schedule.Config{Limit: 2}, jobs, func(s *schedule.Scheduler) {
			time.Sleep(2 * time.Second)
			if got := s.Ask("c", "suspicion"); got != schedule.Begun {
				t.Fatalf("Ask: %v, want Begun", got)
			}
			synctest.Wait()
			if last := r.looks[len(r.looks)-1]; last.ID != "c" {
				t.Errorf("last look began is %q, want c", last.ID)
			}
		})
	})
}

func TestNew_RefusesJobsThatCannotBeScheduled(t *testing.T) {
	look := (&recorder{}).look
	for name, jobs := range map[string][]schedule.Job{
		"no id":             {{"", time.Second}},
		"an id twice":       {{"a", time.Second}, {"a", time.Second}},
		"no interval":       {{"a", 0}},
		"negative interval": {{"a", -time.Second}},
	} {
		if _, err := schedule.New(schedule.Config{}, jobs, look); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := schedule.New(schedule.Config{}, nil, nil); err == nil {
		t.Error("no look: no error")
	}
}

func TestRun_WithoutJobsWaitsForItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run(t, &recorder{}, schedule.Config{}, nil, func(*schedule.Scheduler) { time.Sleep(3 * time.Hour) })
	})
}
