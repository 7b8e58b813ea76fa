package vantage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

var par1 = evidence.Vantage{Place: "par", Name: "p1"}

// lookFunc is a check.
type lookFunc func(context.Context) checks.Finding

func (f lookFunc) Look(ctx context.Context) checks.Finding { return f(ctx) }

func always(o checks.Outcome) lookFunc {
	return func(context.Context) checks.Finding { return checks.Finding{Outcome: o} }
}

// message is what the core got.
type message struct {
	Kind checks.Kind
	ID   string
	At   time.Time
	Got  []evidence.Evidence
}

// core is a publisher that keeps what it gets.
type core struct {
	t     *testing.T
	takes time.Duration // how long a publish takes

	mu       sync.Mutex // guards the fields below
	down     error      // what publishes fail with
	messages []message
	now      int
	most     int
}

func (c *core) Publish(ctx context.Context, kind checks.Kind, id string, body []byte) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	got, err := evidence.Decode(par1, body)
	if err != nil {
		c.t.Errorf("message %s does not decode: %v", id, err)
	}
	for _, e := range got {
		if e.Kind != kind {
			c.t.Errorf("message of kind %s holds evidence of kind %s", kind, e.Kind)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return c.down
	}
	c.messages = append(c.messages, message{kind, id, time.Now(), got})
	return nil
}

func (c *core) set(down error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// all returns the evidence of a check in the order of arrival; "" means all.
func (c *core) all(check string) (got []evidence.Evidence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.messages {
		for _, e := range m.Got {
			if check == "" || e.Check == check {
				got = append(got, e)
			}
		}
	}
	return got
}

func (c *core) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.messages)
}

// setup is a vantage under test and what is around it.
type setup struct {
	*vantage.Vantage
	core    *core
	changed chan struct{}
	asks    chan vantage.Ask
	log     *bytes.Buffer
	stop    func()
}

func job(id string, kind checks.Kind, interval time.Duration, c checks.Check) vantage.Job {
	return vantage.Job{ID: id, Kind: kind, Check: c, Interval: interval, Timeout: 10 * time.Second}
}

// run starts a vantage in the bubble; it is stopped at the end of the test.
func run(t *testing.T, kind evidence.VantageKind, c *core, jobs ...vantage.Job) *setup {
	t.Helper()
	s := &setup{core: c, changed: make(chan struct{}, 1), asks: make(chan vantage.Ask), log: &bytes.Buffer{}}
	c.t = t
	v, err := vantage.New(vantage.Config{Vantage: par1, Kind: kind}, jobs, vantage.Deps{
		Publish: c, Changed: s.changed, Asks: s.asks, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	s.Vantage = v
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(s.stop)
	synctest.Wait()
	return s
}

// bubble runs f in a synctest bubble, with what it set up stopped inside it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRun_EvidenceCarriesSlotSequenceAndWhatWasSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{}, job("web/http", checks.KindHTTP, time.Second, always(checks.Pass)))
		time.Sleep(10 * time.Second)
		s.stop()
		got := s.core.all("")
		if len(got) != 10 {
			t.Fatalf("%d pieces of evidence in 10 s, want 10", len(got))
		}
		boot := got[0].Boot
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(boot) {
			t.Errorf("boot %q, want 128 bits in hex", boot)
		}
		for i, e := range got {
			if e.Slot.IsZero() || i > 0 && e.Slot.Sub(got[i-1].Slot) != time.Second {
				t.Errorf("evidence %d: slot %s", i, e.Slot)
			}
			if e.Waited < 0 || e.Waited > 100*time.Millisecond {
				t.Errorf("evidence %d waited %s, want at most a batch's 100 ms", i, e.Waited)
			}
			e.Slot, e.Waited = time.Time{}, 0
			want := evidence.Evidence{Check: "web/http", Kind: checks.KindHTTP, Vantage: par1, Boot: boot, Seq: uint64(i + 1),
				Finding: checks.Finding{Outcome: checks.Pass}}
			if d := cmp.Diff(want, e); d != "" {
				t.Errorf("evidence %d (-want +got):\n%s", i, d)
			}
		}
		for _, m := range s.core.messages {
			if want := fmt.Sprintf("p1-%s-%d", boot, m.Got[0].Seq); m.ID != want {
				t.Errorf("message id %q, want %q", m.ID, want)
			}
		}
		st := s.Stats()
		if st.Looks[checks.Pass] != 10 || st.Outbox.Published != 10 || st.Outbox.Waiting != 0 || st.Schedule.Scheduled != 10 {
			t.Errorf("stats %+v, want 10 looks, all published", st)
		}
	})
}

func TestNewBoot_IsNewEachTime(t *testing.T) {
	if a, b := vantage.NewBoot(), vantage.NewBoot(); a == b {
		t.Errorf("NewBoot gave %s twice", a)
	}
}

func TestPublish_PassingEvidenceIsBatchedByKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var jobs []vantage.Job
		for i := range 60 {
			jobs = append(jobs, job(fmt.Sprintf("s%d/http", i), checks.KindHTTP, time.Second, always(checks.Pass)),
				job(fmt.Sprintf("s%d/port", i), checks.KindPort, time.Second, always(checks.Pass)))
		}
		s := run(t, evidence.Prober, &core{}, jobs...)
		time.Sleep(1100 * time.Millisecond) // the first of each check goes at once
		synctest.Wait()
		before, pieces := s.core.count(), len(s.core.all(""))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		messages, pieces := s.core.count()-before, len(s.core.all(""))-pieces
		// A flush per 100 ms has at most one message of each kind.
		if pieces < 1180 || messages > 220 {
			t.Errorf("%d pieces in %d messages in 10 s, want about 1200 in at most 220", pieces, messages)
		}
	})
}

func TestPublish_AFullBatchDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const interval = 10 * time.Millisecond
		var jobs []vantage.Job
		for i := range 200 {
			jobs = append(jobs, job(fmt.Sprintf("s%d/http", i), checks.KindHTTP, interval, always(checks.Pass)))
		}
		s := run(t, evidence.Prober, &core{}, jobs...)
		time.Sleep(300 * time.Millisecond)
		s.stop()
		for _, m := range s.core.messages {
			if n := len(m.Got); n > evidence.MaxBatch {
				t.Fatalf("message with %d pieces, want at most %d", n, evidence.MaxBatch)
			}
			for _, e := range m.Got {
				if e.Waited > 10*time.Millisecond {
					t.Fatalf("piece %d waited %s though 20,000 come each second", e.Seq, e.Waited)
				}
			}
		}
	})
}

func TestPublish_WhatMattersGoesAtOnceAndTakesTheRestAlong(t *testing.T) {
	for name, second := range map[string]checks.Finding{
		"a failure":                      {Outcome: checks.Fail},
		"something urgent":               {Outcome: checks.Pass, Urgent: true},
		"an outcome other than the last": {Outcome: checks.Warn},
		"blindness after sight":          {Outcome: checks.Blind},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				looks := 0
				s := run(t, evidence.Prober, &core{}, job("web", checks.KindHTTP, time.Second, lookFunc(func(context.Context) checks.Finding {
					if looks++; looks == 3 {
						return second
					}
					return checks.Finding{Outcome: checks.Pass}
				})))
				time.Sleep(4 * time.Second)
				s.stop()
				got := s.core.all("web")
				if got[1].Waited != 100*time.Millisecond {
					t.Errorf("an ordinary pass waited %s, want the batch's 100 ms", got[1].Waited)
				}
				if got[2].Waited != 0 || got[2].Finding.Outcome != second.Outcome {
					t.Errorf("%s waited %s: %+v", name, got[2].Waited, got[2].Finding)
				}
			})
		})
	}
}

func TestPublish_OneMessageIsUnderWayAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &core{takes: 300 * time.Millisecond}
		var jobs []vantage.Job
		for i := range 10 {
			jobs = append(jobs, job(fmt.Sprintf("s%d", i), checks.KindHTTP, 100*time.Millisecond, always(checks.Fail)))
		}
		s := run(t, evidence.Prober, c, jobs...)
		time.Sleep(10 * time.Second)
		s.stop()
		if c.most != 1 {
			t.Errorf("%d publishes at once, want 1", c.most)
		}
		if n := c.count(); n > 40 {
			t.Errorf("%d messages in 10 s at 0.3 s each, want what gathers meanwhile to go together", n)
		}
		seqsInOrder(t, c)
	})
}

// seqsInOrder checks that each kind's sequences rise by arrival and none is
// missing over all kinds.
func seqsInOrder(t *testing.T, c *core) {
	t.Helper()
	last := map[checks.Kind]uint64{}
	seen := map[uint64]bool{}
	var highest uint64
	for _, e := range c.all("") {
		if e.Seq <= last[e.Kind] || seen[e.Seq] {
			t.Fatalf("%s: sequence %d after %d", e.Kind, e.Seq, last[e.Kind])
		}
		last[e.Kind], seen[e.Seq] = e.Seq, true
		highest = max(highest, e.Seq)
	}
	if len(seen) != int(highest) {
		t.Errorf("%d pieces arrived, the highest sequence is %d", len(seen), highest)
	}
}

func TestPublish_WhileTheCoreIsAwayNothingIsLostOrReordered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &core{down: errors.New("no hub")}
		s := run(t, evidence.Agent, c,
			job("web", checks.KindHTTP, time.Second, always(checks.Pass)),
			job("port", checks.KindPort, time.Second, always(checks.Fail)))
		time.Sleep(60 * time.Second)
		if st := s.Stats().Outbox; st.PublishErrors < 25 || st.PublishErrors > 40 || st.Published != 0 {
			t.Errorf("a minute without a core: %+v, want about 30 attempts with back-off up to 2 s", st)
		}
		c.set(nil)
		time.Sleep(10 * time.Second)
		s.stop()
		if got := len(c.all("")); got != 140 {
			t.Errorf("%d pieces arrived, want 140", got)
		}
		seqsInOrder(t, c)
		first := c.all("")[0]
		if first.Waited < 59*time.Second {
			t.Errorf("the oldest piece says it waited %s, want about a minute", first.Waited)
		}
		if n := strings.Count(s.log.String(), "core takes no evidence"); n != 1 {
			t.Errorf("the loss was logged %d times, want once", n)
		}
	})
}

func TestPublish_ARetryIsTheSameMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &lossy{seen: map[string]string{}, t: t}
		v, err := vantage.New(vantage.Config{Vantage: par1, Kind: evidence.Prober},
			[]vantage.Job{job("web", checks.KindHTTP, 50*time.Millisecond, always(checks.Fail))},
			vantage.Deps{Publish: c, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := v.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if c.repeats == 0 {
			t.Error("no message was sent twice")
		}
	})
}

// lossy stores every message and loses each second acknowledgement. The pieces
// under an id must stay the same.
type lossy struct {
	t       *testing.T
	calls   int
	repeats int
	seen    map[string]string
}

func (l *lossy) Publish(_ context.Context, _ checks.Kind, id string, body []byte) error {
	got, err := evidence.Decode(par1, body)
	if err != nil {
		l.t.Errorf("decode: %v", err)
	}
	var seqs strings.Builder
	for _, e := range got {
		fmt.Fprint(&seqs, e.Seq, " ")
	}
	if before, again := l.seen[id]; again {
		l.repeats++
		if before != seqs.String() {
			l.t.Errorf("message %s first held %s then %s", id, before, seqs.String())
		}
	}
	l.seen[id] = seqs.String()
	if l.calls++; l.calls%2 == 1 {
		return errors.New("acknowledgement lost")
	}
	return nil
}

func TestPublish_TheOldestAreDroppedAndCountedWhenTooManyWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := &core{down: errors.New("no hub")}
		var jobs []vantage.Job
		for i := range 100 {
			jobs = append(jobs, job(fmt.Sprintf("s%d", i), checks.KindHTTP, time.Second, always(checks.Pass)))
		}
		s := run(t, evidence.Prober, c, jobs...)
		time.Sleep(150 * time.Second)
		synctest.Wait()
		st := s.Stats().Outbox
		if st.Waiting != 10_000 || st.Dropped < 4900 || st.Dropped > 5100 {
			t.Errorf("15,000 pieces without a core: %+v, want 10,000 waiting and the rest dropped", st)
		}
		c.set(nil)
		time.Sleep(5 * time.Second)
		s.stop()
		var last uint64
		for _, e := range c.all("") {
			if e.Seq <= last {
				t.Fatalf("sequence %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
	})
}

func TestPublish_EvidenceThatFitsNoMessageIsDroppedAndDoesNotBlockTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		huge := checks.Finding{Outcome: checks.Fail, Detail: strings.Repeat("x", 520<<10)}
		large := checks.Finding{Outcome: checks.Fail, Detail: strings.Repeat("x", 200<<10)}
		c := &core{takes: 700 * time.Millisecond}
		s := run(t, evidence.Prober, c,
			job("huge", checks.KindHTTP, 4*time.Second, lookFunc(func(context.Context) checks.Finding { return huge })),
			job("large", checks.KindHTTP, time.Second, lookFunc(func(context.Context) checks.Finding { return large })))
		time.Sleep(8 * time.Second)
		s.stop()
		if st := s.Stats().Outbox; st.Dropped == 0 || st.Published < 6 {
			t.Errorf("stats %+v, want the huge dropped and the large published", st)
		}
		for _, m := range c.messages {
			if len(m.Got) > 2 {
				t.Errorf("message with %d pieces of 200 kB, a message holds 512 kB", len(m.Got))
			}
		}
	})
}

func TestLook_APanicIsBlindAndLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{},
			job("bad", checks.KindHTTP, time.Second, lookFunc(func(context.Context) checks.Finding { panic("nil map") })),
			job("good", checks.KindHTTP, time.Second, always(checks.Pass)))
		time.Sleep(5*time.Second + 50*time.Millisecond) // slots lie on tenths of a second
		s.stop()
		for _, e := range s.core.all("bad") {
			if e.Finding.Outcome != checks.Blind || e.Finding.Reason != checks.ReasonPanic || !strings.Contains(e.Finding.Detail, "nil map") {
				t.Errorf("finding of a panic: %+v, want blind with its reason", e.Finding)
			}
		}
		if got := len(s.core.all("good")); got != 5 {
			t.Errorf("%d looks of the good check beside the bad one, want 5", got)
		}
		if n := strings.Count(s.log.String(), "a look panicked"); n != 1 {
			t.Errorf("5 panics were logged %d times, want once", n)
		}
		if !strings.Contains(s.log.String(), "vantage_test.go") {
			t.Error("the log does not show where the panic was")
		}
		if st := s.Stats(); st.Panics != 5 || st.Looks[checks.Blind] != 5 {
			t.Errorf("stats %+v, want 5 panics, all blind", st)
		}
	})
}

func TestLook_ATimeoutEndsItWithItsCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cause error
		j := job("slow", checks.KindHTTP, time.Second, lookFunc(func(ctx context.Context) checks.Finding {
			<-ctx.Done()
			if cause == nil {
				cause = context.Cause(ctx)
			}
			return checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonNoAnswer}
		}))
		j.Timeout = 300 * time.Millisecond
		s := run(t, evidence.Prober, &core{}, j)
		time.Sleep(3 * time.Second)
		s.stop()
		if cause == nil || !strings.Contains(cause.Error(), "300ms") || errors.Is(cause, context.Canceled) {
			t.Errorf("cause of the end is %v, want the job's timeout", cause)
		}
		if got := s.core.all("slow"); len(got) == 0 || got[0].Finding.Reason != checks.ReasonNoAnswer {
			t.Errorf("evidence %+v, want what the look made of its timeout", got)
		}
	})
}

func TestShutdown_ALookWeCutIsBlindAndNeverAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{},
			job("cut", checks.KindHTTP, time.Second, lookFunc(func(ctx context.Context) checks.Finding {
				<-ctx.Done()
				return checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonConnectFailed}
			})),
			job("done", checks.KindHTTP, time.Second, lookFunc(func(ctx context.Context) checks.Finding {
				<-ctx.Done() // had its answer as we went
				return checks.Finding{Outcome: checks.Pass}
			})))
		time.Sleep(2 * time.Second)
		s.stop()
		cut, done := s.core.all("cut"), s.core.all("done")
		if len(cut) != 1 || cut[0].Finding.Outcome != checks.Blind || cut[0].Finding.Reason != checks.ReasonShuttingDown {
			t.Errorf("the look cut short: %+v, want one blind piece", cut)
		}
		if len(done) != 1 || done[0].Finding.Outcome != checks.Pass {
			t.Errorf("the look that passed: %+v, want one pass", done)
		}
	})
}

func TestShutdown_WaitsAtMostASecondForTheCore(t *testing.T) {
	for name, c := range map[string]*core{
		"a core that is away":       {down: errors.New("no hub")},
		"a core that never answers": {takes: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := run(t, evidence.Prober, c, job("web", checks.KindHTTP, time.Second, always(checks.Fail)))
				time.Sleep(3 * time.Second)
				began := time.Now()
				s.stop()
				if took := time.Since(began); took != time.Second {
					t.Errorf("shutdown took %s, want 1 s", took)
				}
				if !strings.Contains(s.log.String(), "unsent") {
					t.Error("the unsent evidence was not logged")
				}
			})
		})
	}
}

func TestShutdown_WhatWaitsForItsBatchStillGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{}, job("web", checks.KindHTTP, time.Second, always(checks.Pass)))
		for s.Stats().Schedule.Scheduled < 3 {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		s.stop()
		if got := len(s.core.all("web")); got != 3 || time.Since(began) != 0 {
			t.Errorf("%d pieces after %s, want 3 at once", got, time.Since(began))
		}
	})
}

func TestHostChange_AnAgentLooksAtAllInsideJobsAndSendsWhatIsUrgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		urgent := false
		look := func(f checks.Finding) lookFunc {
			return func(context.Context) checks.Finding {
				if urgent {
					return f
				}
				return checks.Finding{Outcome: checks.Pass}
			}
		}
		outside := 0
		s := run(t, evidence.Agent, &core{},
			job("workers", checks.KindWorkers, time.Hour, look(checks.Finding{Outcome: checks.Warn, Urgent: true})),
			job("port", checks.KindPort, time.Hour, look(checks.Finding{Outcome: checks.Fail})),
			job("http", checks.KindHTTP, time.Hour, lookFunc(func(context.Context) checks.Finding {
				outside++
				return checks.Finding{}
			})))
		change := func() { s.changed <- struct{}{}; synctest.Wait() }
		change()
		if got := s.core.all(""); len(got) != 0 {
			t.Fatalf("a change without anything urgent sent %+v", got)
		}
		urgent = true
		at := time.Now()
		change()
		got := s.core.all("")
		if len(got) != 1 || got[0].Check != "workers" || got[0].Trigger != "host" || !got[0].Slot.IsZero() {
			t.Fatalf("evidence %+v, want the urgent one of workers with trigger host", got)
		}
		if !s.core.messages[0].At.Equal(at) {
			t.Errorf("sent %s after the change, want at once", s.core.messages[0].At.Sub(at))
		}
		if st := s.Stats(); outside != 0 || st.Looks[checks.Pass] != 2 || st.Looks[checks.Warn] != 1 || st.Looks[checks.Fail] != 1 {
			t.Errorf("outside looks %d, stats %+v, want each inside job looked at twice", outside, st)
		}
	})
}

func TestHostChange_DoesNotOverlapAScheduledLookOfTheSameCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		s := run(t, evidence.Agent, &core{}, job("workers", checks.KindWorkers, time.Second, lookFunc(func(context.Context) checks.Finding {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(400 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return checks.Finding{Outcome: checks.Pass}
		})))
		for range 20 {
			select {
			case s.changed <- struct{}{}:
			default:
			}
			time.Sleep(130 * time.Millisecond)
		}
		s.stop()
		if most != 1 {
			t.Errorf("%d looks of one check at once", most)
		}
	})
}

func TestHostChange_IsNoBusinessOfAProber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{}, job("workers", checks.KindWorkers, time.Hour, always(checks.Fail)))
		s.changed <- struct{}{}
		time.Sleep(time.Second)
		if st := s.Stats(); st.Looks[checks.Fail] != 0 {
			t.Errorf("a prober looked %d times because of its host", st.Looks[checks.Fail])
		}
	})
}

func TestAsk_IsAnsweredAtOnceUnderItsTrigger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := run(t, evidence.Prober, &core{}, job("web", checks.KindHTTP, time.Hour, lookFunc(func(context.Context) checks.Finding {
			time.Sleep(200 * time.Millisecond)
			return checks.Finding{Outcome: checks.Pass}
		})))
		at := time.Now()
		s.asks <- vantage.Ask{Check: "web", Trigger: "inc-7"}
		s.asks <- vantage.Ask{Check: "web", Trigger: "inc-8"} // answered by the one that runs
		s.asks <- vantage.Ask{Check: "no/such", Trigger: "inc-7"}
		time.Sleep(time.Second)
		s.asks <- vantage.Ask{Check: "web"}
		time.Sleep(time.Second)
		got := s.core.all("")
		if len(got) != 2 || got[0].Trigger != "inc-7" || got[1].Trigger != "ask" || !got[0].Slot.IsZero() {
			t.Fatalf("evidence %+v, want one for inc-7 and one for ask", got)
		}
		if took := s.core.messages[0].At.Sub(at); took != 200*time.Millisecond {
			t.Errorf("the answer left after %s, want as soon as the look of 200 ms was done", took)
		}
		if st := s.Stats(); st.UnknownAsks != 1 || st.Schedule.Coalesced != 1 {
			t.Errorf("stats %+v, want one unknown and one coalesced", st)
		}
		close(s.asks)
		synctest.Wait()
	})
}

func TestNew_RefusesWhatCouldNotRun(t *testing.T) {
	ok := vantage.Config{Vantage: par1, Kind: evidence.Prober}
	good := job("web", checks.KindHTTP, time.Second, always(checks.Pass))
	deps := vantage.Deps{Publish: &core{}, Log: slog.New(slog.DiscardHandler)}
	change := func(f func(*vantage.Job)) []vantage.Job { j := good; f(&j); return []vantage.Job{j} }
	for name, c := range map[string]struct {
		cfg  vantage.Config
		jobs []vantage.Job
		deps vantage.Deps
	}{
		"no vantage":   {vantage.Config{Kind: evidence.Prober}, nil, deps},
		"no kind":      {vantage.Config{Vantage: par1}, nil, deps},
		"no publisher": {ok, nil, vantage.Deps{Log: deps.Log}},
		"no log":       {ok, nil, vantage.Deps{Publish: deps.Publish}},
		"no check":     {ok, change(func(j *vantage.Job) { j.Check = nil }), deps},
		"no timeout":   {ok, change(func(j *vantage.Job) { j.Timeout = 0 }), deps},
		"no interval":  {ok, change(func(j *vantage.Job) { j.Interval = 0 }), deps},
		"a job twice":  {ok, []vantage.Job{good, good}, deps},
	} {
		if _, err := vantage.New(c.cfg, c.jobs, c.deps); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := vantage.New(ok, []vantage.Job{good}, deps); err != nil {
		t.Errorf("what is good: %v", err)
	}
}
