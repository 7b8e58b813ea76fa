package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
)

// A step of a story: time passes, then perhaps somebody beats, and we look.
type step struct {
	after  time.Duration
	beat   string // the name of the worker, or "*" for the workload; more with lines
	pid    int
	want   string // outcome and reason
	detail string
	urgent bool
}

func TestLook_Stories(t *testing.T) {
	whole := heartbeat.Config{Every: 30 * time.Second, Grace: 10 * time.Second}
	two := heartbeat.Config{Every: 30 * time.Second, Grace: 10 * time.Second, Workers: []string{"a", "b"}}
	three := heartbeat.Config{Every: 30 * time.Second, Grace: 10 * time.Second, Count: 3}
	const sec = time.Second
	for name, story := range map[string]struct {
		cfg   heartbeat.Config
		steps []step
	}{
		"in time, then silent, then back": {whole, []step{
			{0, "", 0, "warn", "waiting for a first beat", false},
			{5 * sec, "*", 0, "pass", "last heard 0s ago", false},
			{40 * sec, "", 0, "pass", "last heard 40s ago", false},
			{1 * sec, "", 0, "fail heartbeat_missed", "last heard 41s ago; a beat is expected every 30s, with 10s of grace", true},
			{5 * sec, "", 0, "fail heartbeat_missed", "last heard 46s ago", false},
			{5 * sec, "*", 0, "pass", "last heard", true},
			{5 * sec, "*", 0, "pass", "", false},
		}},
		"never heard of": {whole, []step{
			{40 * sec, "", 0, "warn", "waiting", false},
			{500 * time.Millisecond, "", 0, "fail heartbeat_missed", "nothing heard in the 41s since we wait", true},
			{100 * sec, "*", 0, "pass", "", true},
		}},
		"what it says of itself": {whole, []step{
			{0, "*\nSTATUS=3 jobs left", 0, "pass", "last heard 0s ago: 3 jobs left", false},
			{30 * sec, "STATUS=stuck", 0, "pass", "last heard 30s ago: stuck", false},
			{11 * sec, "STATUS=still stuck", 0, "fail heartbeat_missed", "", true},
		}},
		"it stops, and is started again": {whole, []step{
			{0, "*", 7, "pass", "", false},
			{1 * sec, "STOPPING=1", 7, "warn stopping", "announced 0s ago that it stops, last heard 1s ago", true},
			{2 * sec, "*", 7, "warn stopping", "", false},
			{41 * sec, "", 0, "warn stopping", "announced 43s ago", false},
			{1 * sec, "READY=1", 8, "pass", "", true},
		}},
		"another process beats after a stop": {whole, []step{
			{0, "*", 7, "pass", "", false},
			{1 * sec, "STOPPING=1", 7, "warn stopping", "", true},
			{1 * sec, "*", 8, "pass", "", true},
		}},
		"it announced a stop and goes on": {whole, []step{
			{0, "STOPPING=1", 7, "warn stopping", "", true},
			{39 * sec, "*", 7, "warn stopping", "", false},
			{39 * sec, "*", 7, "pass", "", true},
		}},
		"it stops while its workers go on": {two, []step{
			{0, "a", 70, "warn", "", false},
			{0, "b", 71, "pass", "", false},
			{1 * sec, "STOPPING=1", 7, "warn stopping", "", true},
			{1 * sec, "a", 70, "warn stopping", "", false},
			{1 * sec, "READY=1", 8, "pass", "", true},
			{1 * sec, "STOPPING=1\nX_CROSSCHECK_WORKER=a", 70, "pass", "", false}, // one worker's own affair
			{36 * sec, "b", 71, "pass", "", false},
			{3 * sec, "", 0, "warn heartbeat_missed", "(a)", true},
		}},
		"one of the counted stops": {three, []step{
			{0, "*", 70, "warn", "", false},
			{0, "STOPPING=1", 70, "warn", "", false},
			{0, "STOPPING=1", 7, "warn stopping", "", true}, // main, which never beats
		}},
		"it asks to be taken for dead": {whole, []step{
			{0, "*", 7, "pass", "", false},
			{1 * sec, "WATCHDOG=trigger", 7, "fail heartbeat_missed", "asks to be taken for dead", true},
			{1 * sec, "*", 7, "pass", "", true},
		}},
		"one of two workers asks to be taken for dead": {two, []step{
			{0, "a", 70, "warn", "", false},
			{0, "b", 71, "pass", "", false},
			{1 * sec, "WATCHDOG=trigger", 70, "warn heartbeat_missed", "1 of 2 workers are silent (a)", true},
			{1 * sec, "b", 71, "warn heartbeat_missed", "", false},
			{1 * sec, "a", 70, "pass", "", true},
		}},
		"one of two workers falls silent": {two, []step{
			{0, "a", 0, "warn", "waiting", false},
			{0, "b", 0, "pass", "", false},
			{39 * sec, "a", 0, "pass", "", false},
			{2 * sec, "", 0, "warn heartbeat_missed", "1 of 2 workers are silent (b)", true},
			{39 * sec, "", 0, "fail heartbeat_missed", "all 2 workers are silent", true},
			{1 * sec, "*", 0, "fail heartbeat_missed", "all 2 workers are silent", false},
			{1 * sec, "b", 0, "warn heartbeat_missed", "(a)", true},
			{1 * sec, "a", 0, "pass", "", true},
		}},
		"a process that gave its name once": {two, []step{
			{0, "a", 70, "warn", "", false},
			{0, "b", 71, "pass", "", false},
			{35 * sec, "*", 70, "pass", "", false},
			{6 * sec, "", 0, "warn heartbeat_missed", "(b)", true},
		}},
		"counted workers": {three, []step{
			{0, "*", 70, "warn", "waiting", false},
			{0, "*", 71, "warn", "waiting", false},
			{0, "*", 72, "pass", "", false},
			{30 * sec, "*", 70, "pass", "", false},
			{0, "*", 71, "pass", "", false},
			{11 * sec, "", 0, "warn heartbeat_missed", "1 of 3 workers are silent (pid 72)", true},
			{1 * sec, "*", 99, "pass", "", true}, // replaced
		}},
		"counted workers that never were": {three, []step{
			{39 * sec, "*", 70, "warn", "waiting", false},
			{2 * sec, "", 0, "warn heartbeat_missed", "2 of 3 workers are silent (one never heard of, one never heard of)", true},
		}},
		"we slept ourselves": {whole, []step{
			{0, "*", 0, "pass", "", false},
			{100 * sec, "", 0, "blind own_limit", "we were stalled", false},
			{39 * sec, "", 0, "blind own_limit", "stalled ourselves until 39s ago", false},
			{2 * sec, "", 0, "fail heartbeat_missed", "last heard 2m21s ago", true},
		}},
		"we slept, and it beat as soon as we could hear": {whole, []step{
			{0, "*", 0, "pass", "", false},
			{100 * sec, "*", 0, "pass", "", false},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := heartbeat.New(story.cfg, heartbeat.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			heartbeat.SetClock(c, func() time.Time { return now })
			for i, s := range story.steps {
				now = now.Add(s.after)
				if s.beat != "" {
					if err := heartbeat.Take(c, beat(t, s)); err != nil {
						t.Fatalf("step %d: Take = %v", i, err)
					}
				}
				f := c.Look(context.Background())
				got := strings.TrimSpace(fmt.Sprintf("%s %s", f.Outcome, f.Reason))
				if got != s.want || !strings.Contains(f.Detail, s.detail) || f.Urgent != s.urgent {
					t.Errorf("step %d: Look() = %s %q, urgent %t; want %s %q, urgent %t", i, got, f.Detail, f.Urgent, s.want, s.detail, s.urgent)
				}
				consistent(t, f)
			}
		})
	}
}

func beat(t *testing.T, s step) heartbeat.Beat {
	t.Helper()
	first, rest, _ := strings.Cut(s.beat, "\n")
	message := s.beat
	switch {
	case first == "*":
		message = "WATCHDOG=1\n" + rest
	case !strings.Contains(first, "="):
		message = "WATCHDOG=1\nX_CROSSCHECK_WORKER=" + first
	}
	b, err := heartbeat.ParseNotify([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	b.PID = s.pid
	return b
}

// consistent holds for every finding.
func consistent(t *testing.T, f checks.Finding) {
	t.Helper()
	h := f.Heartbeat
	if f.Outcome == checks.Blind {
		if h != nil {
			t.Errorf("a blind finding has facts: %+v", h)
		}
		return
	}
	switch {
	case h == nil:
		t.Fatalf("no facts in %+v", f)
	case (len(h.Missed) > 0) != (h.MissedFor > 0): // one that asks to be taken for dead is missed at once
		t.Errorf("%d missed for %s", len(h.Missed), h.MissedFor)
	case h.Beating+len(h.Missed) > h.Expected:
		t.Errorf("%d beat and %d are missed of %d", h.Beating, len(h.Missed), h.Expected)
	case f.Outcome == checks.Pass && (h.Last < 0 || h.Last > h.Every+h.Grace || h.Beating != h.Expected):
		t.Errorf("pass with %+v: silence is never health", h)
	case (h.Last < 0) != (h.Waiting > 0) && h.Last >= 0:
		t.Errorf("last %s and waiting %s", h.Last, h.Waiting)
	case f.Suspicious != (f.Reason == checks.ReasonHeartbeatMissed):
		t.Errorf("suspicious %t with reason %q", f.Suspicious, f.Reason)
	}
}

func TestLook_AnEndedContextIsShutdown(t *testing.T) {
	c, err := heartbeat.New(heartbeat.Config{Every: time.Second}, heartbeat.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f := c.Look(ctx); f.Outcome != checks.Blind || f.Reason != checks.ReasonShuttingDown {
		t.Errorf("Look() = %+v, want blind, shutting down", f)
	}
}

// The finding leaves at the deadline, not at the next scheduled look.
func TestRun_SpeaksUpAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 10)
		c, err := heartbeat.New(heartbeat.Config{Every: 30 * time.Second, Grace: 10 * time.Second},
			heartbeat.Deps{Changed: func() { changed <- struct{}{} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		take := func(b heartbeat.Beat) {
			if err := c.Beat(b); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what string, after time.Duration, want checks.Outcome) {
			t.Helper()
			from := time.Now()
			<-changed
			if took := time.Since(from).Round(time.Millisecond); took != after {
				t.Errorf("%s: changed after %s, want %s", what, took, after)
			}
			if f := c.Look(ctx); f.Outcome != want {
				t.Errorf("%s: %s, want %s", what, f.Outcome, want)
			}
		}
		take(heartbeat.Beat{})
		expect("first beat", 0, checks.Pass)
		time.Sleep(20 * time.Second)
		take(heartbeat.Beat{})
		expect("deadline", 40*time.Second, checks.Fail)
		time.Sleep(time.Hour) // nothing more to say
		if len(changed) != 0 {
			t.Errorf("%d changes more while it stays silent", len(changed))
		}
		take(heartbeat.Beat{})
		expect("back", 0, checks.Pass)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
}

func TestBeat_RefusalsAreCountedAndFloodsBounded(t *testing.T) {
	c, err := heartbeat.New(heartbeat.Config{Every: time.Minute, Workers: []string{"a"}}, heartbeat.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	heartbeat.SetClock(c, func() time.Time { return now })
	if err := c.Beat(heartbeat.Beat{Worker: "nobody"}); !errors.Is(err, heartbeat.ErrUnknown) {
		t.Errorf("Beat(of nobody) = %v, want ErrUnknown", err)
	}
	refused := 0
	for range 3000 {
		if err := c.Beat(heartbeat.Beat{Worker: "a"}); errors.Is(err, heartbeat.ErrTooMany) {
			refused++
		}
	}
	if s := c.Stats(); refused < 1900 || s.Refused != uint64(refused)+1 || s.Beats != uint64(3000-refused) {
		t.Errorf("%d of 3000 at once refused, stats %+v; want 1000 or so taken, and all counted", refused, s)
	}
	now = now.Add(time.Second)
	if err := c.Beat(heartbeat.Beat{Worker: "a"}); err != nil {
		t.Errorf("Beat() a second later = %v, want nil", err)
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	for name, cfg := range map[string]heartbeat.Config{
		"no interval":       {},
		"a negative grace":  {Every: time.Second, Grace: -1},
		"named and counted": {Every: time.Second, Workers: []string{"a"}, Count: 2},
		"one name twice":    {Every: time.Second, Workers: []string{"a", "a"}},
		"no name":           {Every: time.Second, Workers: []string{"A b"}},
		"a negative count":  {Every: time.Second, Count: -1},
	} {
		if _, err := heartbeat.New(cfg, heartbeat.Deps{}); err == nil {
			t.Errorf("New(%s) = nil error, want one", name)
		}
	}
}

func BenchmarkBeat(b *testing.B) {
	c, err := heartbeat.New(heartbeat.Config{Every: time.Minute, Count: 100}, heartbeat.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	message := []byte("WATCHDOG=1\nSTATUS=working on 17 jobs\n")
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		beat, err := heartbeat.ParseNotify(message)
		if err != nil {
			b.Fatal(err)
		}
		beat.PID = 1 + n%100
		if err := heartbeat.Take(c, beat); err != nil {
			b.Fatal(err)
		}
	}
}
