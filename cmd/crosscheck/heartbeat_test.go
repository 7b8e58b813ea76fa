package main

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/console"
)

// TestServe_AHeartbeatThatFallsSilentPages lets a workload beat over HTTP, fall
// silent, and beat again: one page, one resolve.
func TestServe_AHeartbeatThatFallsSilentPages(t *testing.T) {
	t.Parallel()
	p := startPager(t)
	dir := t.TempDir()
	write(t, dir, "alertmanager.yml", string(p.AlertmanagerConfig()))
	s := serve(t, write(t, dir, "crosscheck.yml", `listen: 127.0.0.1:0
alertmanager: {config_file: alertmanager.yml}
services:
  - name: mail
    close_after: 1s
    checks:
      - {name: queue, interval: 1s, heartbeat: {every: 1s, grace: 500ms}}
`))
	stop := beat(t, s.url+"/heartbeat/mail/queue")
	s.await("the first beats", func(v console.View) bool { return len(v.Services) == 1 && v.Services[0].Verdict == "up" })
	stop()
	page, err := p.Await(within(t, 20*time.Second), true)
	if err != nil {
		t.Fatal(err)
	}
	v := s.await("the incident", func(v console.View) bool { return len(v.Incidents) == 1 })
	if got := v.Services[0]; got.Verdict != "down" || got.Cause != "heartbeat_missed" {
		t.Errorf("silent: %s because of %q, want down because of heartbeat_missed", got.Verdict, got.Cause)
	}
	stop = beat(t, s.url+"/heartbeat/mail/queue")
	resolve, err := p.Await(within(t, 20*time.Second), false)
	if err != nil {
		t.Fatal(err)
	}
	if resolve.Incident != page.Incident {
		t.Errorf("resolved %s, want %s", resolve.Incident, page.Incident)
	}
	stop()
	s.stop()
	if pages, resolves := p.Counts(); pages != 1 || resolves != 1 {
		t.Errorf("got %d pages and %d resolves, want 1 and 1", pages, resolves)
	}
}

// beat sends a heartbeat every 100 ms until it is stopped, once.
func beat(t *testing.T, url string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			resp, err := http.Post(url, "text/plain", nil)
			if err == nil {
				err = resp.Body.Close()
			}
			if err == nil && resp.StatusCode >= 300 {
				err = fmt.Errorf("status %s", resp.Status)
			}
			select {
			case <-done:
				return // serve may have stopped before us
			case <-tick.C:
			}
			if err != nil {
				t.Errorf("beat: %v", err)
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); beats.Wait() })
}
