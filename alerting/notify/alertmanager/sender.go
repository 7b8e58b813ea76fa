// Package alertmanager sends incident states to Alertmanagers: to all of them,
// again each minute, and with an end that is always set. It routes, groups and
// silences nothing; that is Alertmanager's work.
package alertmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	commoncfg "github.com/prometheus/common/config"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
)

// Numbers that Prometheus uses towards Alertmanager (rules/manager.go and
// rules/alerting.go, 0.316): resend-delay 1m, endsAt = now + 4 x resend-delay,
// resolved alerts kept for 15m, batches of 256 (notifier, max batch size).
const (
	ResendEvery     = time.Minute
	Validity        = 4 * ResendEvery
	ResolveRetained = 15 * time.Minute
	maxBatch        = 256
)

// postTimeout of one POST. Chosen: the default of Prometheus' alertmanager_config.
const postTimeout = 10 * time.Second

// apiPath is appended to each configured URL.
const apiPath = "/api/v2/alerts"

// Config says where the Alertmanagers are.
type Config struct {
	// URLs are base addresses, one for each instance, with the instance's route
	// prefix if it has one: "http://am-1:9093", "https://host/alertmanager".
	// Never a load balancer's. At least one.
	URLs []string
	// HTTP is TLS, authentication and proxy as Prometheus' users know them.
	// Unused if Deps.Transport is set.
	HTTP commoncfg.HTTPClientConfig
}

// Deps are the live things a Sender works with.
type Deps struct {
	// Transport replaces the network: the embedded Alertmanager is called
	// through the same JSON as a remote one. May be nil.
	Transport http.RoundTripper
	// Log may be nil.
	Log *slog.Logger
}

// Sender is a notify.Notifier. Its Run must be running for Notify to get
// anywhere.
type Sender struct {
	log       *slog.Logger
	instances []*instance

	// mu guards the fields below.
	mu     sync.Mutex
	alerts map[alertID]*alert
}

var _ notify.Notifier = (*Sender)(nil)

// New checks the configuration; it sends nothing yet.
func New(cfg Config, deps Deps) (*Sender, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("alertmanager: no url configured")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	client := &http.Client{Transport: deps.Transport}
	if deps.Transport == nil {
		if err := cfg.HTTP.Validate(); err != nil {
			return nil, fmt.Errorf("alertmanager: http client: %w", err)
		}
		var err error
		if client, err = commoncfg.NewClientFromConfig(cfg.HTTP, "alertmanager", commoncfg.WithUserAgent("crosscheck")); err != nil {
			return nil, fmt.Errorf("alertmanager: http client: %w", err)
		}
	}
	s := &Sender{log: deps.Log, alerts: map[alertID]*alert{}}
	for i, raw := range cfg.URLs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("alertmanager: urls[%d]: %w", i, err)
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, fmt.Errorf("alertmanager: urls[%d]: %q is not an http or https address", i, u.Redacted())
		}
		u.Path = strings.TrimSuffix(u.Path, "/") + apiPath
		s.instances = append(s.instances, newInstance(u, client, s.render, deps.Log))
	}
	return s, nil
}

// Name is "alertmanager".
func (s *Sender) Name() string { return "alertmanager" }

// Notify hands the notice to every instance and returns nil as soon as one has
// answered 2xx; the others go on by themselves, and the resend each minute mends
// what they missed. The error is permanent if every instance called the alert
// invalid. It satisfies notify.Notifier.
func (s *Sender) Notify(ctx context.Context, n notify.Notice) error {
	id := idOf(n)
	s.mu.Lock()
	a, known := s.alerts[id]
	if !known {
		a = &alert{}
		s.alerts[id] = a
	}
	a.update(n, time.Now())
	s.mu.Unlock()

	replies := make(chan error, len(s.instances))
	for _, in := range s.instances {
		in.enqueue(id, replies)
	}
	var errs []error
	for range s.instances {
		select {
		case err := <-replies:
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return !notify.IsPermanent(err) }) {
		return fmt.Errorf("post to %d alertmanagers: %w", len(errs), transient(errors.Join(errs...)))
	}
	s.mu.Lock()
	delete(s.alerts, id) // resending what everybody calls invalid helps nobody
	s.mu.Unlock()
	return notify.Permanent(fmt.Errorf("post to %d alertmanagers: %w", len(errs), errors.Join(errs...)))
}

// transient hides a permanent error among others that are worth a retry.
func transient(err error) error { return errors.New(err.Error()) }

// Run posts and resends until ctx ends. Resolved alerts are resent too, for
// ResolveRetained: an instance that was away must not go on believing them.
func (s *Sender) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, in := range s.instances {
		wg.Go(func() { in.run(ctx) })
	}
	defer wg.Wait()
	tick := time.NewTicker(ResendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, id := range s.current(now) {
				for _, in := range s.instances {
					in.enqueue(id, nil)
				}
			}
		}
	}
}

// current forgets what was resolved long ago and returns the rest, pages first:
// after a restart of the Alertmanager a page must be known before the ticket it
// mutes.
func (s *Sender) current(now time.Time) []alertID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]alertID, 0, len(s.alerts))
	for id, a := range s.alerts {
		if !a.resolvedAt.IsZero() && now.Sub(a.resolvedAt) > ResolveRetained {
			delete(s.alerts, id)
			continue
		}
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func compareIDs(a, b alertID) int {
	if pa, pb := a.severity == notify.SeverityPage, b.severity == notify.SeverityPage; pa != pb {
		if pa {
			return -1
		}
		return 1
	}
	return strings.Compare(a.service+"\x00"+a.incident+"\x00"+a.severity, b.service+"\x00"+b.incident+"\x00"+b.severity)
}

// render returns the alerts as of now, so that what waited in a queue is never
// older than what was told last.
func (s *Sender) render(ids []alertID) []postableAlert {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	alerts := make([]postableAlert, 0, len(ids))
	for _, id := range ids {
		if a, ok := s.alerts[id]; ok {
			alerts = append(alerts, a.postable(now))
		}
	}
	return alerts
}

// InstanceStats is what one Alertmanager has been sent since the start.
type InstanceStats struct {
	URL    string // without credentials
	Posted uint64 // POSTs answered 2xx
	Failed uint64 // POSTs that were not
	Queued int    // alerts waiting to be posted
}

// Stats returns one entry for each instance, in the order of Config.URLs.
func (s *Sender) Stats() []InstanceStats {
	stats := make([]InstanceStats, 0, len(s.instances))
	for _, in := range s.instances {
		stats = append(stats, in.snapshot())
	}
	return stats
}
