package heartbeats_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/heartbeats"
)

func set(t *testing.T) *heartbeats.Set {
	t.Helper()
	s, err := heartbeats.New([]config.InsideCheck{
		{ID: "web/workers", Kind: checks.KindWorkers},
		{ID: "mail/queue", Kind: checks.KindHeartbeat, Interval: 5 * time.Second, Timeout: time.Second, Heartbeat: &heartbeat.Config{ID: "mail/queue", Every: 30 * time.Second}},
		{ID: "mail/each", Kind: checks.KindHeartbeat, Interval: 5 * time.Second, Timeout: time.Second, Heartbeat: &heartbeat.Config{ID: "mail/each", Every: 30 * time.Second, Workers: []string{"a"}}},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHandler_TakesBeatsAndSaysWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		taken, refused     uint64
		outcome            checks.Outcome
	}{
		"a plain POST":                 {"POST", "/heartbeat/mail/queue", "", 204, 1, 0, checks.Pass},
		"a GET, as of a browser":       {"GET", "/heartbeat/mail/queue", "", 405, 0, 0, checks.Warn},
		"with a status":                {"POST", "/heartbeat/mail/queue", "STATUS=2 left\n", 204, 1, 0, checks.Pass},
		"a stop":                       {"POST", "/heartbeat/mail/queue", "STOPPING=1", 204, 1, 0, checks.Warn},
		"a worker":                     {"POST", "/heartbeat/mail/each/a", "", 204, 1, 0, checks.Pass},
		"a worker in the body":         {"POST", "/heartbeat/mail/each", "X_CROSSCHECK_WORKER=a", 204, 1, 0, checks.Pass},
		"nobody in particular":         {"POST", "/heartbeat/mail/each", "", 400, 0, 1, checks.Warn},
		"a stop of all":                {"POST", "/heartbeat/mail/each", "STOPPING=1", 204, 1, 0, checks.Warn},
		"a worker that is none":        {"POST", "/heartbeat/mail/each/b", "", 404, 0, 1, checks.Warn},
		"a worker with no name":        {"POST", "/heartbeat/mail/each/%20", "", 400, 0, 1, checks.Warn},
		"a body that says nothing":     {"POST", "/heartbeat/mail/queue", "hello", 400, 0, 1, checks.Warn},
		"a body too long":              {"POST", "/heartbeat/mail/queue", strings.Repeat("A=b\n", 2000), 400, 0, 1, checks.Warn},
		"a check that is none":         {"POST", "/heartbeat/mail/nobody", "", 404, 0, 0, checks.Warn},
		"a check of another kind":      {"POST", "/heartbeat/web/workers", "", 404, 0, 0, checks.Warn},
		"a method that says otherwise": {"DELETE", "/heartbeat/mail/queue", "", 405, 0, 0, checks.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body)))
			if w.Code != tt.status {
				t.Errorf("%s %s = %d %q, want %d", tt.method, tt.path, w.Code, w.Body, tt.status)
			}
			c := s.Checks()[0]
			if strings.Contains(tt.path, "/each") {
				c = s.Checks()[1]
			}
			if st := c.Stats(); st.Beats != tt.taken || st.Refused != tt.refused {
				t.Errorf("stats %+v, want %d taken, %d refused", st, tt.taken, tt.refused)
			}
			if f := c.Look(context.Background()); f.Outcome != tt.outcome {
				t.Errorf("Look() = %s %q, want %s", f.Outcome, f.Detail, tt.outcome)
			}
		})
	}
}

func TestHandler_AFloodIsTurnedAway(t *testing.T) {
	h := set(t).Handler()
	for range 5000 {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("POST", "/heartbeat/mail/queue", nil)); w.Code == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("5000 beats at once, and none was turned away")
}

func TestChanged_CarriesBothTheHostsAndTheBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, host := set(t), make(chan struct{}, 1)
		changed := s.Changed(host)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		host <- struct{}{}
		<-changed
		if err := s.Checks()[0].Beat(heartbeat.Beat{}); err != nil {
			t.Fatal(err)
		}
		<-changed // its first
		from := time.Now()
		<-changed
		if took := time.Since(from).Round(time.Millisecond); took != 30*time.Second {
			t.Errorf("the next change after %s, want the deadline's 30s", took)
		}
		cancel()
		<-ended
	})
}

func TestSet_WithoutHeartbeatsIsNotInTheWay(t *testing.T) {
	s, err := heartbeats.New([]config.InsideCheck{{ID: "web/workers", Kind: checks.KindWorkers}}, nil)
	if err != nil || len(s.Jobs()) != 0 {
		t.Fatalf("New() = %+v, %v", s, err)
	}
	host := make(chan struct{})
	if got := s.Changed(host); got != (<-chan struct{})(host) {
		t.Error("Changed(host) is another channel than the host's")
	}
}
