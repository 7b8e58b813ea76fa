package core

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
)

// The metrics of the core. The rooms count; here the counters get their names.
// README.md of this folder lists them, and a test holds the two together.
var (
	descVerdict = prometheus.NewDesc("crosscheck_service_verdict",
		"1 for the verdict a service has in a region now, 0 for the others.", []string{"service", "region", "verdict"}, nil)
	descOpen = prometheus.NewDesc("crosscheck_incidents_open",
		"Open incidents by the highest severity they raised.", []string{"severity"}, nil)
	descSteps = prometheus.NewDesc("crosscheck_incident_steps_total",
		"Incident steps recorded in the journal since the start.", nil, nil)
	descEvidence = prometheus.NewDesc("crosscheck_evidence_total",
		"Pieces of evidence by what became of them; undecodable counts messages.", []string{"result"}, nil)
	descAsks = prometheus.NewDesc("crosscheck_looks_asked_total",
		"Looks on demand asked of vantages.", []string{"result"}, nil)
	descAppendErrors = prometheus.NewDesc("crosscheck_journal_append_errors_total",
		"Tries of a journal append that failed and were repeated.", nil, nil)
	descUnrecorded = prometheus.NewDesc("crosscheck_notices_unrecorded_total",
		"Accepted notices whose acceptance could not be queued for the journal: after a restart they are sent once more under the same key.", nil, nil)
	descNotices = prometheus.NewDesc("crosscheck_notices_total",
		"Notices by receiver and result: accepted, failed (a try), retried (a try), dead, cancelled.", []string{"receiver", "result"}, nil)
	descQueue = prometheus.NewDesc("crosscheck_notices_queued",
		"Incidents and severities with something to deliver now.", []string{"receiver"}, nil)
	descPosts = prometheus.NewDesc("crosscheck_alertmanager_posts_total",
		"POSTs to each Alertmanager by result: accepted (2xx) or failed.", []string{"url", "result"}, nil)
	descPostQueue = prometheus.NewDesc("crosscheck_alertmanager_alerts_queued",
		"Alerts waiting to be posted to each Alertmanager.", []string{"url"}, nil)
	descRefused = prometheus.NewDesc("crosscheck_config_refused_services",
		"Services of the configuration that are refused, and not watched.", nil, nil)
	descRefusal = prometheus.NewDesc("crosscheck_config_refused_service",
		"Faults of a service that is refused, and not watched.", []string{"service"}, nil)
	descReady = prometheus.NewDesc("crosscheck_ready",
		"1 while the engine judges; 0 while it does not answer, or the store takes nothing.", nil, nil)
	descBuild = prometheus.NewDesc("crosscheck_build_info",
		"1; the labels say what was built.", []string{"version", "goversion"}, nil)
)

func (c *Core) registerMetrics() error {
	for _, col := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{c}, vantagemetrics.Collector{Vantages: c.local.vantages, Observer: c.local.observer, Accepted: c.local.accepted, Heartbeats: c.local.beats.Checks()},
	} {
		if err := c.registry.Register(col); err != nil {
			return err
		}
	}
	return nil
}

type collector struct{ core *Core }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descVerdict, descOpen, descSteps, descEvidence, descAsks, descAppendErrors,
		descUnrecorded, descNotices, descQueue, descPosts, descPostQueue, descRefused, descRefusal, descReady, descBuild} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	v, err := c.core.View(ctx)
	gauge(descReady, truth(err == nil && v.Ready && c.core.store.refusing() <= notReadyAfter))
	if err == nil {
		c.collectView(v, gauge)
	}
	e := c.core.engine.Stats()
	counter(descSteps, e.Steps)
	counter(descEvidence, e.Observed, "judged")
	counter(descEvidence, e.Duplicate, "duplicate")
	counter(descEvidence, e.Late, "late")
	counter(descEvidence, e.Unknown, "unknown_check")
	counter(descEvidence, e.Undecodable, "undecodable")
	counter(descAsks, e.Asks, "sent")
	counter(descAsks, e.AskErrors, "error")
	counter(descAppendErrors, e.AppendErrors)
	counter(descUnrecorded, e.Unrecorded)
	for _, r := range c.core.loop.Stats() {
		counter(descNotices, r.Delivered, r.Receiver, "accepted")
		counter(descNotices, r.Failed, r.Receiver, "failed")
		counter(descNotices, r.Retries, r.Receiver, "retried")
		counter(descNotices, r.Dead, r.Receiver, "dead")
		counter(descNotices, r.Cancelled, r.Receiver, "cancelled")
		gauge(descQueue, float64(r.Queued), r.Receiver)
	}
	for _, a := range c.core.sender.Stats() {
		counter(descPosts, a.Posted, a.URL, "accepted")
		counter(descPosts, a.Failed, a.URL, "failed")
		gauge(descPostQueue, float64(a.Queued), a.URL)
	}
	gauge(descRefused, float64(len(c.core.file.Refused)))
	for _, r := range c.core.file.Refused {
		gauge(descRefusal, float64(len(r.Faults)), r.Service)
	}
	version, goVersion := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = info.Main.Version, info.GoVersion
	}
	gauge(descBuild, 1, version, goVersion)
}

func (c collector) collectView(v engine.View, gauge func(*prometheus.Desc, float64, ...string)) {
	for _, s := range v.Services {
		for _, verdict := range []correlate.Verdict{correlate.Unknown, correlate.Up, correlate.Degraded, correlate.Down} {
			gauge(descVerdict, truth(s.State.Verdict == verdict), s.State.Scope.Service, s.State.Scope.Region, verdict.String())
		}
	}
	open := map[string]float64{"page": 0, "ticket": 0}
	for _, s := range v.Open {
		open[string(s.Severities[len(s.Severities)-1])]++
	}
	for severity, n := range open {
		gauge(descOpen, n, severity)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
