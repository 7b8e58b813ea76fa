// Package pager is a receiver of Alertmanager's webhook that remembers what it
// was told and when. The demo, the end-to-end tests and the benchmark use it in
// the place of the thing that wakes somebody.
package pager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Call is one alert of one notification as it was received.
type Call struct {
	At       time.Time
	Firing   bool
	Incident string
	Severity string
	Summary  string
}

// Pager is a running receiver.
type Pager struct {
	server *http.Server
	url    string
	done   chan struct{}

	// mu guards the fields below.
	mu    sync.Mutex
	calls []Call
	more  chan struct{} // closed and renewed by every call
}

// webhook is the part of Alertmanager's webhook body that a pager needs
// (alertmanager/template.Data and notify/webhook.Message).
type webhook struct {
	Alerts []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"alerts"`
}

// Start listens on a free port of loopback.
func Start() (*Pager, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the pager: %w", err)
	}
	p := &Pager{url: "http://" + l.Addr().String() + "/page", done: make(chan struct{}), more: make(chan struct{})}
	p.server = &http.Server{Handler: http.HandlerFunc(p.receive), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // returns when Stop closes it
	}()
	return p, nil
}

// URL is where Alertmanager's webhook_configs must point.
func (p *Pager) URL() string { return p.url }

// Stop closes the receiver and waits for it.
func (p *Pager) Stop() {
	_ = p.server.Close()
	<-p.done
}

func (p *Pager) receive(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var body webhook
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range body.Alerts {
		p.calls = append(p.calls, Call{
			At: now, Firing: a.Status == "firing", Incident: a.Labels["incident"],
			Severity: a.Labels["severity"], Summary: a.Annotations["summary"],
		})
	}
	close(p.more)
	p.more = make(chan struct{})
}

// Received returns the calls so far and a channel that is closed by the next.
func (p *Pager) Received() ([]Call, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...), p.more
}

// The severities that alerts have.
const (
	Page   = "page"
	Ticket = "ticket"
)

// Counts returns how many pages and how many resolves of pages were received.
func (p *Pager) Counts() (pages, resolves int) { return p.CountsOf(Page) }

// CountsOf returns how many alerts of a severity were received, and how many
// resolves of such.
func (p *Pager) CountsOf(severity string) (alerts, resolves int) {
	calls, _ := p.Received()
	for _, c := range calls {
		switch {
		case c.Severity != severity:
		case c.Firing:
			alerts++
		default:
			resolves++
		}
	}
	return alerts, resolves
}

// Await returns the first page (firing) or the first resolve of one, and waits
// for it until ctx ends.
func (p *Pager) Await(ctx context.Context, firing bool) (Call, error) {
	return p.AwaitOf(ctx, Page, firing)
}

// AwaitOf is Await for alerts of a severity; of any, if it is empty.
func (p *Pager) AwaitOf(ctx context.Context, severity string, firing bool) (Call, error) {
	for {
		calls, more := p.Received()
		for _, c := range calls {
			if c.Firing == firing && (severity == "" || c.Severity == severity) {
				return c, nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Call{}, fmt.Errorf("no such call: %w", context.Cause(ctx))
		}
	}
}

// AlertmanagerConfig is an alertmanager.yml that hands everything to the pager
// at once, as deploy/quickstart does for pages.
func (p *Pager) AlertmanagerConfig() []byte {
	return fmt.Appendf(nil, `route:
  receiver: pager
  group_by: [service, incident, severity]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 4h
receivers:
  - name: pager
    webhook_configs:
      - url: %s
        send_resolved: true
`, p.url)
}
