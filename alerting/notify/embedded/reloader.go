package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	commoncfg "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/prometheus/alertmanager/api"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/labelset"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/client_golang/prometheus"
)

// reloader owns what depends on the configuration: routes, receivers, inhibitor
// and dispatcher. It follows app/reloader.go of Alertmanager 0.35: build all that
// can fail first, then swap.
type reloader struct {
	log      *slog.Logger
	api      *api.API
	alerts   *mem.Alerts
	nflog    *nflog.Log
	silencer *silence.Silencer
	external *url.URL
	builder  *notify.PipelineBuilder
	metrics  *dispatch.DispatcherMetrics
	ok       prometheus.Gauge
	okAt     prometheus.Gauge

	// mu is held while the configuration is swapped; it guards gate and closed.
	mu     sync.Mutex
	gate   *gate
	closed bool

	// Read by requests at any time.
	dispatcher atomic.Pointer[dispatch.Dispatcher]
	inhibitor  atomic.Pointer[inhibit.Inhibitor]
}

// wire gives the reloader the parts that live as long as the process.
func (r *reloader) wire(a *Alertmanager, log *nflog.Log, silencer *silence.Silencer, external *url.URL) {
	r.log, r.alerts, r.nflog, r.silencer, r.external = a.log, a.alerts, log, silencer, external
	r.builder = notify.NewPipelineBuilder(a.registry, featurecontrol.NoopFlags{}, eventrecorder.Recorder{})
	r.metrics = dispatch.NewDispatcherMetrics(false, a.registry, featurecontrol.NoopFlags{})
	r.ok = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "alertmanager_config_last_reload_successful",
		Help: "Whether the last configuration reload attempt was successful.",
	})
	r.okAt = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "alertmanager_config_last_reload_success_timestamp_seconds",
		Help: "Timestamp of the last successful configuration reload.",
	})
	a.registry.MustRegister(r.ok, r.okAt) // a fresh registry: the names are free
}

// apply puts conf in force. On an error nothing has changed.
func (r *reloader) apply(conf *config.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("alertmanager is stopped")
	}
	tmpl, err := template.FromGlobs(conf.Templates)
	if err != nil {
		return fmt.Errorf("parse templates: %w", err)
	}
	tmpl.ExternalURL = r.external
	receivers, err := buildReceivers(conf, tmpl, r.log)
	if err != nil {
		return err
	}

	intervals := map[string][]timeinterval.TimeInterval{}
	for _, ti := range conf.MuteTimeIntervals {
		intervals[ti.Name] = ti.TimeIntervals
	}
	for _, ti := range conf.TimeIntervals {
		intervals[ti.Name] = ti.TimeIntervals
	}
	intervener := timeinterval.NewIntervener(intervals)

	r.stopLocked()
	inhibitor := inhibit.NewInhibitor(r.alerts, conf.InhibitRules, r.log, eventrecorder.Recorder{})
	// The peer is an untyped nil: a typed one would count as a cluster.
	pipeline := r.builder.New(receivers, noWait, inhibitor, r.silencer, intervener, r.nflog, nil)
	r.gate = newGate(pipeline)
	r.api.Update(conf, func(ctx context.Context, labels labelset.LabelSet) {
		r.inhibitor.Load().Mutes(ctx, labels)
		r.silencer.Mutes(ctx, labels)
	})
	dispatcher := dispatch.NewDispatcher(r.alerts, dispatch.NewRoute(conf.Route, nil), r.gate, intervener,
		atLeastMinTimeout, dispatchMaintenanceInterval, nil, r.log, eventrecorder.Recorder{}, r.metrics, tmpl)

	// The inhibitor must know all alerts before the dispatcher may send any, and
	// each is published only when it has loaded.
	go inhibitor.Run() // Stop ends it
	inhibitor.WaitForLoading()
	r.inhibitor.Store(inhibitor)
	go dispatcher.Run(time.Now()) // Stop ends it and waits
	dispatcher.WaitForLoading()
	r.dispatcher.Store(dispatcher)
	r.ok.Set(1)
	r.okAt.SetToCurrentTime()
	return nil
}

// buildReceivers builds the integrations of all receivers, also of those that no
// route uses: a fault in them should be known before they are used.
func buildReceivers(conf *config.Config, tmpl *template.Template, log *slog.Logger) (map[string][]notify.Integration, error) {
	receivers := make(map[string][]notify.Integration, len(conf.Receivers))
	for _, rcv := range conf.Receivers {
		integrations, err := receiver.BuildReceiverIntegrations(rcv, tmpl, log, commoncfg.WithUserAgent("crosscheck"))
		if err != nil {
			return nil, fmt.Errorf("receiver %q: %w", rcv.Name, err)
		}
		receivers[rcv.Name] = integrations
	}
	return receivers, nil
}

// stop ends all that the configuration started. It may be called more than once.
func (r *reloader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.stopLocked()
}

// stopLocked lets notifications under way finish, cuts those that take too long,
// and returns when none is left.
func (r *reloader) stopLocked() {
	if r.gate == nil {
		return
	}
	r.gate.drain(drainLimit)
	r.inhibitor.Load().Stop()
	r.dispatcher.Load().Stop()
	r.gate.wait()
}

// groups serves GET /api/v2/alerts and /alerts/groups.
func (r *reloader) groups(ctx context.Context, route func(*dispatch.Route) bool, alert dispatch.AlertFilter) (dispatch.AlertGroups, map[model.Fingerprint][]string, error) {
	return r.dispatcher.Load().Groups(ctx, route, alert)
}

// noWait is how long to wait for a peer: there is none.
func noWait() time.Duration { return 0 }

// atLeastMinTimeout bounds one flush: a group_interval of 1 s must not cut a
// receiver that takes longer.
func atLeastMinTimeout(d time.Duration) time.Duration { return max(d, notify.MinTimeout) }
