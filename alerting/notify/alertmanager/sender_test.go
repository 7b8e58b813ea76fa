package alertmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
	"github.com/crosscheck-project/crosscheck/alerting/notify/alertmanager"
)

// posted is one alert as an Alertmanager reads it.
type posted struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     *time.Time        `json:"startsAt"`
	EndsAt       *time.Time        `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	at           time.Time
}

func (p posted) firing() bool { return p.EndsAt.After(p.at) }

// network is a fake RoundTripper: hosts that answer as they are told.
type network struct {
	// answer returns the status for a host; an error is a network error.
	answer func(req *http.Request, alerts []posted) (int, error)

	mu    sync.Mutex
	posts map[string][][]posted // by host
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var alerts []posted
	if err := json.Unmarshal(body, &alerts); err != nil {
		return nil, err
	}
	for i := range alerts {
		alerts[i].at = time.Now()
	}
	n.mu.Lock()
	if n.posts == nil {
		n.posts = map[string][][]posted{}
	}
	n.posts[req.URL.Host] = append(n.posts[req.URL.Host], alerts)
	n.mu.Unlock()
	status := http.StatusOK
	if n.answer != nil {
		if status, err = n.answer(req, alerts); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode: status,
		Body:       io.NopCloser(strings.NewReader("because")),
		Request:    req,
	}, nil
}

// to returns all alerts posted to host, in order.
func (n *network) to(host string) []posted {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.posts[host]...)
}

// start runs a sender in the bubble; stop ends it and waits.
func start(t *testing.T, n *network, urls ...string) (s *alertmanager.Sender, stop func()) {
	t.Helper()
	s, err := alertmanager.New(alertmanager.Config{URLs: urls}, alertmanager.Deps{Transport: n})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func notice(firing bool) notify.Notice {
	n := notify.Notice{
		Incident: "i1", Step: 3, Service: "public-lb", Severity: notify.SeverityPage, Firing: firing,
		StartsAt: time.Now().Add(-time.Second), Verdict: "down", Cause: "workers_crash_looping", Scope: "par",
		Summary: "public-lb par DOWN", Detail: "outside: 3 of 3 fail\ninside: 0 of 4 workers", Reason: "opened",
		Runbook: "https://runbooks/lb", ConsoleURL: "http://127.0.0.1:8080/incidents/i1",
	}
	if !firing {
		n.EndsAt = time.Now()
	}
	return n
}

func TestSender_OneDeadInstanceDelaysNeitherTheOtherNorNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: func(req *http.Request, _ []posted) (int, error) {
			if req.URL.Host == "dead:9093" {
				<-req.Context().Done()
				return 0, req.Context().Err()
			}
			return 200, nil
		}}
		s, stop := start(t, n, "http://dead:9093", "http://alive:9093")
		defer stop()
		for i := range 3 {
			begun := time.Now()
			note := notice(true)
			note.Incident = fmt.Sprint("i", i)
			if err := s.Notify(t.Context(), note); err != nil {
				t.Fatalf("Notify %d: %v", i, err)
			}
			if took := time.Since(begun); took != 0 {
				t.Errorf("Notify %d took %s, want no time", i, took)
			}
			synctest.Wait()
		}
		if got := len(n.to("alive:9093")); got != 3 {
			t.Errorf("alerts to the living: got %d, want 3", got)
		}
		// The dead one times out; what waited meanwhile follows as one batch.
		time.Sleep(11 * time.Second)
		n.mu.Lock()
		batches := n.posts["dead:9093"]
		n.mu.Unlock()
		if len(batches) != 2 || len(batches[1]) != 2 {
			t.Errorf("posts to the dead: got %d, want one of 1 and one of 2 alerts", len(batches))
		}
		if got := s.Stats(); got[0].Failed != 1 || got[1].Posted != 3 {
			t.Errorf("Stats: got %+v, want 1 failed, 3 posted", got)
		}
	})
}

func TestSender_ResendsFiringAlertsEachMinuteWithAnEndFourMinutesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		first := notice(true)
		if err := s.Notify(t.Context(), first); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		// A later step of the same incident must not move startsAt.
		time.Sleep(90 * time.Second)
		second := notice(true)
		if err := s.Notify(t.Context(), second); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		time.Sleep(10 * time.Minute)
		got := n.to("am:9093")
		if len(got) != 2+11 {
			t.Fatalf("posts: got %d, want 2 notices and 11 resends", len(got))
		}
		for i, p := range got {
			if want := p.at.Add(4 * time.Minute); !p.EndsAt.Equal(want) {
				t.Errorf("post %d: endsAt %v, want %v", i, p.EndsAt, want)
			}
			if !p.StartsAt.Equal(first.StartsAt) {
				t.Errorf("post %d: startsAt %v, want %v", i, p.StartsAt, first.StartsAt)
			}
		}
	})
}

func TestSender_ResendsAResolveEachMinuteForAQuarterOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		if err := s.Notify(t.Context(), notice(true)); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		time.Sleep(30 * time.Second)
		ended := time.Now()
		if err := s.Notify(t.Context(), notice(false)); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		time.Sleep(2 * time.Hour)
		got := n.to("am:9093")
		if len(got) != 2+15 {
			t.Fatalf("posts: got %d, want firing, resolve and 15 resends", len(got))
		}
		for i, p := range got[1:] {
			if !p.EndsAt.Equal(ended) {
				t.Errorf("resolve %d: endsAt %v, want %v", i, p.EndsAt, ended)
			}
		}
	})
}

func TestSender_ResolveWithoutAFiringBeforeIsSent(t *testing.T) {
	// The target healed while we were dead: the first we say is the resolve.
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		note := notice(false)
		if err := s.Notify(t.Context(), note); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		p := n.to("am:9093")[0]
		if p.firing() || !p.StartsAt.Equal(note.StartsAt) {
			t.Errorf("resolve: startsAt %v endsAt %v, want %v and now", p.StartsAt, p.EndsAt, note.StartsAt)
		}
	})
}

func TestSender_StartsAtIsNeverInTheFutureNorAfterTheEnd(t *testing.T) {
	rows := []struct {
		name     string
		startsAt time.Duration // from now
		zero     bool
		firing   bool
		want     time.Duration
	}{
		{name: "a start in the past stays", startsAt: -time.Minute, firing: true, want: -time.Minute},
		{name: "a start in the future is now", startsAt: time.Minute, firing: true},
		{name: "no start is now", zero: true, firing: true},
		{name: "a resolve with a start in the future is now", startsAt: time.Minute},
		{name: "a resolve without a start is now", zero: true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				s, stop := start(t, n, "http://am:9093")
				defer stop()
				note := notice(row.firing)
				note.StartsAt = time.Now().Add(row.startsAt)
				if row.zero {
					note.StartsAt = time.Time{}
				}
				if err := s.Notify(t.Context(), note); err != nil {
					t.Fatalf("Notify: %v", err)
				}
				p := n.to("am:9093")[0]
				if want := time.Now().Add(row.want); !p.StartsAt.Equal(want) {
					t.Errorf("startsAt: got %v, want %v", p.StartsAt, want)
				}
				if p.EndsAt.Before(*p.StartsAt) {
					t.Errorf("endsAt %v before startsAt %v", p.EndsAt, p.StartsAt)
				}
			})
		})
	}
}

func TestSender_ReopenedIncidentStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		for _, firing := range []bool{true, false, true} {
			if err := s.Notify(t.Context(), notice(firing)); err != nil {
				t.Fatalf("Notify: %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		got := n.to("am:9093")
		if !got[2].firing() || !got[2].StartsAt.After(*got[1].EndsAt) {
			t.Errorf("reopened: startsAt %v endsAt %v, want firing and after %v", got[2].StartsAt, got[2].EndsAt, got[1].EndsAt)
		}
	})
}

func TestSender_LabelsAreTheIdentityAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		if err := s.Notify(t.Context(), notice(true)); err != nil {
			t.Fatalf("Notify: %v", err)
		}
		p := n.to("am:9093")[0]
		wantLabels := map[string]string{
			"alertname": "CrosscheckIncident", "service": "public-lb", "incident": "i1", "severity": "page",
		}
		if diff := cmp.Diff(wantLabels, p.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		wantAnnotations := map[string]string{
			"summary": "public-lb par DOWN", "description": "outside: 3 of 3 fail\ninside: 0 of 4 workers",
			"verdict": "down", "cause": "workers_crash_looping", "scope": "par", "reason": "opened", "step": "3",
			"runbook_url": "https://runbooks/lb", "console_url": "http://127.0.0.1:8080/incidents/i1",
		}
		if diff := cmp.Diff(wantAnnotations, p.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		if p.GeneratorURL != "http://127.0.0.1:8080/incidents/i1" {
			t.Errorf("generatorURL: got %q, want the console's", p.GeneratorURL)
		}
	})
}

func TestSender_ErrorsSayWhetherARetryCanHelp(t *testing.T) {
	rows := []struct {
		name      string
		answers   map[string]int // 0 is a network error
		wantErr   bool
		permanent bool
	}{
		{"both take it", map[string]int{"a:1": 200, "b:1": 200}, false, false},
		{"one takes it, one calls it invalid", map[string]int{"a:1": 400, "b:1": 200}, false, false},
		{"both call it invalid", map[string]int{"a:1": 400, "b:1": 422}, true, true},
		{"one calls it invalid, one is away", map[string]int{"a:1": 400, "b:1": 0}, true, false},
		{"both fail inside", map[string]int{"a:1": 500, "b:1": 503}, true, false},
		{"our credentials are refused", map[string]int{"a:1": 401, "b:1": 403}, true, false},
		{"a wrong prefix", map[string]int{"a:1": 404, "b:1": 404}, true, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{answer: func(req *http.Request, _ []posted) (int, error) {
					if status := row.answers[req.URL.Host]; status != 0 {
						return status, nil
					}
					return 0, errors.New("connection refused")
				}}
				s, stop := start(t, n, "http://a:1", "http://b:1")
				defer stop()
				err := s.Notify(t.Context(), notice(true))
				if (err != nil) != row.wantErr || notify.IsPermanent(err) != row.permanent {
					t.Errorf("Notify: got %v (permanent %v), want error %v (permanent %v)",
						err, notify.IsPermanent(err), row.wantErr, row.permanent)
				}
				time.Sleep(61 * time.Second)
				resent := len(n.to("a:1")) == 2
				if resent == row.permanent {
					t.Errorf("resent: got %v, want %v", resent, !row.permanent)
				}
			})
		})
	}
}

func TestSender_ABatchWithOneInvalidAlertIsPostedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		n := &network{answer: func(_ *http.Request, alerts []posted) (int, error) {
			if !back.Load() {
				return 503, nil
			}
			for _, a := range alerts {
				if a.Labels["incident"] == "bad" {
					return 400, nil
				}
			}
			return 200, nil
		}}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		for _, incident := range []string{"bad", "good"} {
			note := notice(true)
			note.Incident = incident
			if err := s.Notify(t.Context(), note); err == nil {
				t.Fatalf("Notify %s while away: got nil, want an error", incident)
			}
		}
		back.Store(true)
		time.Sleep(61 * time.Second)
		if got := s.Stats()[0]; got.Posted != 1 || got.Failed != 3 {
			t.Errorf("Stats: got %+v, want the good one posted, and 2 + 1 failed", got)
		}
	})
}

func TestSender_NotifyReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: func(req *http.Request, _ []posted) (int, error) {
			<-req.Context().Done()
			return 0, req.Context().Err()
		}}
		s, stop := start(t, n, "http://am:9093")
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Notify(ctx, notice(true)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Notify: got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestSender_SpeaksHTTPToARealServer(t *testing.T) {
	type request struct {
		method, path, contentType, user string
		alerts                          []posted
	}
	got := make(chan request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := request{method: r.Method, path: r.URL.Path, contentType: r.Header.Get("Content-Type")}
		req.user, _, _ = r.BasicAuth()
		if err := json.NewDecoder(r.Body).Decode(&req.alerts); err != nil {
			t.Errorf("decode body: %v", err)
		}
		got <- req
	}))
	defer srv.Close()
	base := strings.Replace(srv.URL, "http://", "http://joe:secret@", 1) + "/prefix/"
	s, err := alertmanager.New(alertmanager.Config{URLs: []string{base}}, alertmanager.Deps{})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if err := s.Notify(t.Context(), notice(true)); err != nil {
		t.Fatalf("Notify: %v", err)
	}
	req := <-got
	if req.method != "POST" || req.path != "/prefix/api/v2/alerts" || req.contentType != "application/json" || req.user != "joe" || len(req.alerts) != 1 {
		t.Errorf("request: got %+v, want POST /prefix/api/v2/alerts with one alert as joe", req)
	}

	srv.Close()
	if err := s.Notify(t.Context(), notice(true)); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Notify to a closed server: got %v, want an error without the password", err)
	}
}

func TestNew_RefusesAddressesItCannotUse(t *testing.T) {
	rows := []struct {
		name string
		urls []string
		want string
	}{
		{"none", nil, "no url configured"},
		{"a bare host", []string{"http://ok:9093", "am:9093"}, "urls[1]"},
		{"another scheme", []string{"ftp://am"}, "not an http or https address"},
		{"no host", []string{"http:///x"}, "not an http or https address"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := alertmanager.New(alertmanager.Config{URLs: row.urls}, alertmanager.Deps{})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("New(%v): got %v, want an error with %q", row.urls, err, row.want)
			}
		})
	}
}
