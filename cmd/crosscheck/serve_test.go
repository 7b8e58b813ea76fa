package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/console"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
	"github.com/crosscheck-project/crosscheck/cmd/internal/nginx"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

func startLab(t *testing.T, listener string) *lab.Lab {
	t.Helper()
	l, err := lab.Start(t.Context(), lab.Options{Listener: listener, PIDFile: filepath.Join(t.TempDir(), "lab.pid")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// TestServe_KillInTheMiddleOfAnIncident: the incident goes on under its id, no
// second page comes, and the resolve arrives, also when the target healed while
// nobody watched.
func TestServe_KillInTheMiddleOfAnIncident(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		healWhileDead bool
	}{
		{"healed after the restart", false},
		{"healed while we were dead", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, l := startPager(t), startLab(t, lab.Reuseport)
			config := configFor(t, p, l.Addr().String(), l.PIDFile())
			s := serve(t, config)
			s.await("a healthy start", settled)
			if err := l.AddRoute("example.com/", "app-4711"); err != nil {
				t.Fatal(err)
			}
			page, err := p.Await(within(t, 20*time.Second), true)
			if err != nil {
				t.Fatal(err)
			}
			// A page is told before it is logged as told: a kill within these few
			// milliseconds may repeat it, under the same key. This kill is later.
			s.awaitNotificationLog(config, page.Incident)
			s.kill()
			if tt.healWhileDead {
				heal(t, l)
			}
			s = serve(t, config)
			v := s.await("the incident after the restart", func(v console.View) bool { return len(v.Incidents) > 0 })
			if v.Incidents[0].ID != page.Incident {
				t.Errorf("after the restart the incident is %s, want %s", v.Incidents[0].ID, page.Incident)
			}
			if !tt.healWhileDead {
				heal(t, l)
			}
			resolve, err := p.Await(within(t, 30*time.Second), false)
			if err != nil {
				t.Fatal(err)
			}
			if resolve.Incident != page.Incident {
				t.Errorf("resolved %s, want %s", resolve.Incident, page.Incident)
			}
			s.await("the closing", settled)
			s.stop()
			if pages, resolves := p.Counts(); pages != 1 || resolves != 1 {
				t.Errorf("got %d pages and %d resolves, want 1 and 1", pages, resolves)
			}
		})
	}
}

// TestServe_KillAtTheVeryMoment kills the core the moment the page arrives,
// before Alertmanager can have logged that it told. The page may come again, as
// the same incident; it is never lost, and never another.
func TestServe_KillAtTheVeryMoment(t *testing.T) {
	t.Parallel()
	p, l := startPager(t), startLab(t, lab.Shared)
	config := configFor(t, p, l.Addr().String(), l.PIDFile())
	s := serve(t, config)
	s.await("a healthy start", settled)
	if err := l.ShutListeners(); err != nil {
		t.Fatal(err)
	}
	page, err := p.Await(within(t, 20*time.Second), true)
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	s = serve(t, config)
	if _, err := p.Await(within(t, 30*time.Second), false); err != nil {
		t.Fatal(err)
	}
	s.stop()
	calls, _ := p.Received()
	for _, c := range calls {
		if c.Incident != page.Incident {
			t.Errorf("told of incident %s beside %s", c.Incident, page.Incident)
		}
	}
	if pages, resolves := p.Counts(); pages > 2 || resolves != 1 {
		t.Errorf("%d pages and %d resolves, want 1 or, repeated, 2, and 1", pages, resolves)
	}
}

func heal(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.RemoveRoute("example.com/"); err != nil {
		t.Fatal(err)
	}
}

func startNginx(t *testing.T) *nginx.Server {
	t.Helper()
	n, err := nginx.Start(within(t, 20*time.Second), t.TempDir(), 4)
	if err == nginx.ErrMissing {
		skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// TestServe_RealNginx goes through what happens to an nginx: look-alikes that
// must page nobody, then two faults with one page each.
func TestServe_RealNginx(t *testing.T) {
	t.Parallel()
	n, p := startNginx(t), startPager(t)
	s := serve(t, configFor(t, p, n.Addr().String(), n.PIDFile()))
	s.await("a healthy start", settled)

	quiet(t, s, p, "a graceful reload", n.Reload)
	quiet(t, s, p, "all workers killed once", n.KillWorkers)

	loop, stopLoop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.KillLoop(loop) }()
	faulty(t, s, p, "workers_crash_looping", func() {
		stopLoop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})

	if err := n.ShutListeners(); err != nil {
		skip(t, "cannot take a copy of nginx' socket: "+err.Error())
	}
	faulty(t, s, p, "port_unbound", func() {
		if err := n.Restart(within(t, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
	})
	s.stop()
	if pages, resolves := p.Counts(); pages != 2 || resolves != 2 {
		t.Errorf("got %d pages and %d resolves, want 2 and 2", pages, resolves)
	}
}

// quietFor is past every window in which a look-alike could page (P1d's 2.5 s,
// and the outside's confirmation).
const quietFor = 5 * time.Second

func quiet(t *testing.T, s *server, p *pager.Pager, what string, do func() error) {
	t.Helper()
	before, _ := p.Counts()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), quietFor)
	defer cancel()
	<-ctx.Done()
	if after, _ := p.Counts(); after != before || len(s.status().Incidents) > 0 {
		t.Fatalf("%s: %d pages, incidents %+v; want none", what, after-before, s.status().Incidents)
	}
	s.await("health after "+what, settled)
}

// faulty waits for the incident with the cause, heals, and waits for its end.
func faulty(t *testing.T, s *server, p *pager.Pager, cause string, heal func()) {
	t.Helper()
	before := len(s.status().Incidents)
	// The outside may be first on a busy machine; the proof then edits the incident.
	v := s.await("an incident of "+cause, func(v console.View) bool {
		return len(v.Incidents) > before && v.Incidents[0].Cause == cause
	})
	if got := v.Services[0]; got.Verdict != "down" || got.Cause != cause {
		t.Errorf("got verdict %s, cause %s (%s), want down, %s", got.Verdict, got.Cause, got.Sentence, cause)
	}
	heal()
	s.await("the end of "+cause, func(v console.View) bool {
		_, resolves := p.Counts()
		return len(v.Incidents) == before+1 && !v.Incidents[0].ClosedAt.IsZero() && resolves == before+1 && settled(v)
	})
}

func TestServe_ASecondOneOnTheSameDataIsRefused(t *testing.T) {
	t.Parallel()
	p, l := startPager(t), startLab(t, lab.Shared)
	config := configFor(t, p, l.Addr().String(), l.PIDFile())
	s := serve(t, config)
	_, stderr, code := runCommand(t, "serve", "-c", config)
	if code != 1 || !strings.Contains(stderr, "in use") {
		t.Errorf("a second serve exits %d and says %q, want 1 and that the directory is in use", code, stderr)
	}
	s.await("the first to go on", settled)
	s.stop()
}

func TestServe_ABadServiceIsRefusedAloneAndShown(t *testing.T) {
	t.Parallel()
	p, l := startPager(t), startLab(t, lab.Shared)
	config := configFor(t, p, l.Addr().String(), l.PIDFile())
	broken := config + ".broken.yml"
	text := readFile(t, config) + `  - name: shop
    region: par
    checks:
      - http: {url: "http://example.com:70000/"}
`
	write(t, filepath.Dir(broken), filepath.Base(broken), text)
	s := serve(t, broken)
	v := s.await("the good service", settled)
	if len(v.Refusals) != 1 || v.Refusals[0].Service != "shop" || v.Refusals[0].Line == 0 || !strings.Contains(v.Refusals[0].Path, "services[1].checks[0].http") {
		t.Errorf("refusals: %+v, want shop's port with its line and path", v.Refusals)
	}
	if page := s.get("/"); !strings.Contains(page, "shop") || !strings.Contains(page, "70000") {
		t.Error("the console does not show the refusal")
	}
	metrics := s.get("/metrics")
	for _, want := range []string{"crosscheck_config_refused_services 1", `crosscheck_config_refused_service{service="shop"} 1`,
		`crosscheck_service_verdict{region="par",service="web",verdict="up"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if got := s.get("/-/ready"); !strings.Contains(got, "ready") {
		t.Errorf("/-/ready: %q", got)
	}
	s.stop()
}
