// Package embedded is an Alertmanager inside this process: routing, grouping,
// inhibition, silences and every receiver of an ordinary alertmanager.yml, with
// API v2 under /alertmanager/. It judges nothing and has no web interface.
//
// It is wired from Alertmanager's packages (0.35), because the packages app and
// ui do not compile from the published module. It is the only importer of them.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/api"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/matcher/compat"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/client_golang/prometheus"
)

// Prefix is where Handler expects its requests.
const Prefix = "/alertmanager"

// Defaults of cmd/alertmanager 0.35 (app/options.go).
const (
	retention                   = 120 * time.Hour
	alertGCInterval             = 30 * time.Minute
	dispatchMaintenanceInterval = 30 * time.Second
)

// drainLimit is how long a notification under way may go on when the
// configuration changes or we stop. Cut earlier, it would have been sent but not
// logged, and be sent again. Chosen: well within the 5 s of a clean stop.
const drainLimit = 2 * time.Second

// Deps are the live things an Alertmanager works with. Both may be nil.
type Deps struct {
	Log *slog.Logger
	// Registerer gets Alertmanager's own metrics. They live in a private
	// registry, so that several instances can stand side by side.
	Registerer prometheus.Registerer
}

// Alertmanager is a running Alertmanager.
type Alertmanager struct {
	cfg        Config
	log        *slog.Logger
	registry   *prometheus.Registry
	registerer prometheus.Registerer
	handler    http.Handler
	alerts     *mem.Alerts
	snapshots  []*snapshotter
	reloader   *reloader
	closeOnce  sync.Once
}

// compatOnce guards Alertmanager's only global state, the choice of its matcher
// syntax.
var compatOnce sync.Once

// New starts an Alertmanager on cfg.Dir. Nothing of it runs if an error is
// returned; otherwise the caller must call Close or Run. One directory belongs
// to one instance: the caller sees to that.
func New(cfg Config, deps Deps) (*Alertmanager, error) {
	if cfg.Dir == "" {
		return nil, errors.New("embedded alertmanager: no directory given")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	compatOnce.Do(func() { compat.InitFromFlags(deps.Log, featurecontrol.NoopFlags{}) })
	if cfg.ExternalURL == "" {
		cfg.ExternalURL = DefaultExternalURL
	}
	external, err := url.Parse(strings.TrimSuffix(cfg.ExternalURL, "/"))
	if err != nil || external.Host == "" {
		return nil, fmt.Errorf("embedded alertmanager: external url %q is not an address", cfg.ExternalURL)
	}
	conf, err := cfg.load()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create alertmanager directory: %w", err)
	}

	a := &Alertmanager{cfg: cfg, log: deps.Log, registry: prometheus.NewRegistry(), registerer: deps.Registerer}
	log, silences, err := a.openState()
	if err != nil {
		return nil, err
	}
	silencer := silence.NewSilencer(silences, a.log, eventrecorder.Recorder{})
	a.alerts, err = mem.NewAlerts(context.Background(), alertGCInterval, 0, silencer, a.log,
		eventrecorder.Recorder{}, a.registry, featurecontrol.NoopFlags{})
	if err != nil {
		return nil, fmt.Errorf("create alert store: %w", err)
	}
	if err := a.serve(silences); err != nil {
		a.alerts.Close()
		return nil, err
	}
	a.reloader.wire(a, log, silencer, external)
	if err := a.reloader.apply(conf); err != nil {
		a.alerts.Close()
		return nil, fmt.Errorf("%s: %w", cfg.name(), err)
	}
	if a.registerer != nil {
		if err := a.registerer.Register(a.registry); err != nil {
			a.reloader.stop()
			a.alerts.Close()
			return nil, fmt.Errorf("register alertmanager metrics: %w", err)
		}
	}
	for _, s := range a.snapshots {
		go s.run() // close waits for it
	}
	return a, nil
}

// openState loads the notification log and the silences and watches them.
func (a *Alertmanager) openState() (*nflog.Log, *silence.Silences, error) {
	nflogPath := filepath.Join(a.cfg.Dir, "nflog")
	options := func(r io.Reader, reg prometheus.Registerer) nflog.Options {
		return nflog.Options{SnapshotReader: r, Retention: retention, Logger: a.log.With("component", "nflog"), Metrics: reg}
	}
	r, err := readState(nflogPath, func(r io.Reader) error {
		_, err := nflog.New(options(r, prometheus.NewRegistry()))
		return err
	}, a.log)
	if err != nil {
		return nil, nil, fmt.Errorf("read notification log: %w", err)
	}
	log, err := nflog.New(options(r, a.registry))
	if err != nil {
		return nil, nil, fmt.Errorf("load notification log: %w", err)
	}

	silencesPath := filepath.Join(a.cfg.Dir, "silences")
	silenceOptions := func(r io.Reader, reg prometheus.Registerer) silence.Options {
		return silence.Options{SnapshotReader: r, Retention: retention, Logger: a.log.With("component", "silences"), Metrics: reg}
	}
	r, err = readState(silencesPath, func(r io.Reader) error {
		_, err := silence.New(silenceOptions(r, prometheus.NewRegistry()))
		return err
	}, a.log)
	if err != nil {
		return nil, nil, fmt.Errorf("read silences: %w", err)
	}
	silences, err := silence.New(silenceOptions(r, a.registry))
	if err != nil {
		return nil, nil, fmt.Errorf("load silences: %w", err)
	}

	for path, state := range map[string]snapshotted{nflogPath: log, silencesPath: silences} {
		s, err := newSnapshotter(path, state, a.log, a.registry)
		if err != nil {
			return nil, nil, err
		}
		a.snapshots = append(a.snapshots, s)
	}
	return log, silences, nil
}

// serve builds the API and the handler. The reloader it creates is empty until
// wire and apply.
func (a *Alertmanager) serve(silences *silence.Silences) error {
	a.reloader = &reloader{}
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "alertmanager_http_request_duration_seconds",
		Help:    "Histogram of latencies for HTTP requests.",
		Buckets: prometheus.DefBuckets,
	}, []string{"handler", "method", "code"})
	if err := a.registry.Register(requests); err != nil {
		return fmt.Errorf("register request metrics: %w", err)
	}
	// Peer stays an untyped nil: a typed one would count as a cluster.
	v2, err := api.New(api.Options{
		Alerts:          a.alerts,
		Silences:        silences,
		Logger:          a.log.With("component", "api"),
		Registry:        a.registry,
		RequestDuration: requests,
		GroupFunc:       a.reloader.groups,
	})
	if err != nil {
		return fmt.Errorf("create alertmanager api: %w", err)
	}
	a.reloader.api = v2
	a.handler = a.routes(v2)
	return nil
}

// Reload reads the configuration again. If it is not good, the old one stays in
// force and the error says why.
func (a *Alertmanager) Reload() error {
	conf, err := a.cfg.load()
	if err == nil {
		if err = a.reloader.apply(conf); err != nil {
			err = fmt.Errorf("%s: %w", a.cfg.name(), err)
		}
	}
	if err != nil {
		a.reloader.ok.Set(0)
		a.log.Error("alertmanager.yml is not good; the old configuration stays in force", "err", err)
		return fmt.Errorf("reload alertmanager, the old configuration stays: %w", err)
	}
	a.log.Info("alertmanager configuration loaded", "from", a.cfg.name())
	return nil
}

// Run waits for ctx to end, then closes.
func (a *Alertmanager) Run(ctx context.Context) error {
	<-ctx.Done()
	return a.Close()
}

// Close lets notifications under way finish, for 2 s at most, stops, and returns
// with the last snapshots on disk. It may be called more than once.
func (a *Alertmanager) Close() error {
	a.closeOnce.Do(func() {
		a.reloader.stop()
		a.alerts.Close()
		for _, s := range a.snapshots {
			s.close()
		}
		a.reloader.api.Shutdown()
		if a.registerer != nil {
			a.registerer.Unregister(a.registry)
		}
	})
	return nil
}
