// Package vantagemetrics gives the counters of vantages and of the host
// observer their names on /metrics. Both binaries use it.
package vantagemetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

var perVantage = []string{"place", "vantage"}

var (
	descLooks = prometheus.NewDesc("crosscheck_looks_total",
		"Finished looks by outcome.", []string{"place", "vantage", "outcome"}, nil)
	descPanics = prometheus.NewDesc("crosscheck_look_panics_total",
		"Looks that panicked, a bug of ours; they are among the blind.", perVantage, nil)
	descMissed = prometheus.NewDesc("crosscheck_slots_missed_total",
		"Scheduled looks that did not happen: busy (the last one still ran), stalled (our process did not).", []string{"place", "vantage", "why"}, nil)
	descLate = prometheus.NewDesc("crosscheck_look_lateness_seconds_total",
		"Sum of our own lateness at the start of scheduled looks.", perVantage, nil)
	descLateMax = prometheus.NewDesc("crosscheck_look_lateness_max_seconds",
		"Greatest lateness of a scheduled look since the start.", perVantage, nil)
	descScheduled = prometheus.NewDesc("crosscheck_looks_begun_total",
		"Looks begun by what began them: schedule or demand. Looks at a change of the host are not counted here.", []string{"place", "vantage", "by"}, nil)
	descPublished = prometheus.NewDesc("crosscheck_evidence_published_total",
		"Pieces of evidence handed on and accepted: stored by the core or, where a vantage runs alone, taken into its own metrics.", perVantage, nil)
	descPublishErrors = prometheus.NewDesc("crosscheck_publish_errors_total",
		"Failed attempts to hand a message to the core.", perVantage, nil)
	descDropped = prometheus.NewDesc("crosscheck_evidence_dropped_total",
		"Pieces of evidence given up because too many waited.", perVantage, nil)
	descWaiting = prometheus.NewDesc("crosscheck_evidence_waiting",
		"Pieces of evidence not stored by the core yet.", perVantage, nil)

	descSweeps = prometheus.NewDesc("crosscheck_host_sweeps_total",
		"Process sweeps over all watched instances.", nil, nil)
	descDumps = prometheus.NewDesc("crosscheck_host_listener_dumps_total",
		"Dumps of the host's listening sockets.", nil, nil)
	descExits = prometheus.NewDesc("crosscheck_host_exits_total",
		"Exits of watched processes that were seen.", nil, nil)
	descUnseen = prometheus.NewDesc("crosscheck_host_unseen_workers_total",
		"Workers that lived and died between two sweeps.", nil, nil)
	descScans = prometheus.NewDesc("crosscheck_host_scans_total",
		"Walks of the whole process table to find a socket's owner.", nil, nil)
	descHostErrors = prometheus.NewDesc("crosscheck_host_errors_total",
		"What could not be read of the host for reasons of our own.", nil, nil)
	descConnector = prometheus.NewDesc("crosscheck_host_connector",
		"1 for the state of the process connector, 0 for the others: live, off, refused (another namespace, or rights that an old kernel wants), dropped (too many events of other processes; pidfds and sweeps go on).", []string{"state"}, nil)
	descConnectorEvents = prometheus.NewDesc("crosscheck_host_connector_events_total",
		"Forks and exits of which the process connector told us.", nil, nil)
	descConnectorGaps = prometheus.NewDesc("crosscheck_host_connector_gaps_total",
		"Events of the process connector that were lost because they came too fast.", nil, nil)
	descConnectorResyncs = prometheus.NewDesc("crosscheck_host_connector_resyncs_total",
		"Sweeps of every watched instance because events were lost.", nil, nil)
	descConnectorDropped = prometheus.NewDesc("crosscheck_host_connector_dropped_total",
		"How often the process connector was dropped.", nil, nil)
	descConnections = prometheus.NewDesc("crosscheck_host_connections_accepted_total",
		"TCP connections the kernel completed for listeners, by network namespace: host is ours, others are named by their path or by an instance in them.", []string{"netns"}, nil)
	descCPU = prometheus.NewDesc("crosscheck_instance_cpu_seconds_total",
		"CPU time, user and system, of an instance's main process, its workers, and children they waited for; absent while there is no main.", []string{"service", "instance"}, nil)

	descBeats = prometheus.NewDesc("crosscheck_heartbeat_messages_total",
		"Messages of workloads to heartbeat checks by result: taken, refused (malformed, of a worker that is not declared, too many).", []string{"check", "result"}, nil)
	descBeatAge = prometheus.NewDesc("crosscheck_heartbeat_age_seconds",
		"Time since the last beat of a heartbeat check, or since we wait for the first.", []string{"check"}, nil)

	descAccepted = prometheus.NewDesc("crosscheck_instance_accepted_connections_total",
		"Connections an instance took, by its server's own account (workers.status); absent while the server does not tell.", []string{"service", "instance"}, nil)
)

// Accepted is where to read how many connections an instance's server says it
// took, if it is known.
type Accepted struct {
	Service, Instance string
	Count             func() (connections uint64, known bool)
}

// Collector collects them. Observer may be nil.
type Collector struct {
	Vantages   map[evidence.Vantage]*vantage.Vantage
	Observer   *host.Observer
	Accepted   []Accepted
	Heartbeats []*heartbeat.Check
}

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLooks, descPanics, descMissed, descLate, descLateMax, descScheduled, descPublished,
		descPublishErrors, descDropped, descWaiting, descSweeps, descDumps, descExits, descUnseen, descScans, descHostErrors, descAccepted,
		descConnector, descConnectorEvents, descConnectorGaps, descConnectorResyncs, descConnectorDropped, descConnections, descCPU, descBeats, descBeatAge} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for v, vt := range c.Vantages {
		s := vt.Stats()
		for _, o := range []checks.Outcome{checks.Blind, checks.Pass, checks.Warn, checks.Fail} {
			counter(descLooks, float64(s.Looks[o]), v.Place, v.Name, o.String())
		}
		counter(descPanics, float64(s.Panics), v.Place, v.Name)
		counter(descMissed, float64(s.Schedule.MissedBusy), v.Place, v.Name, "busy")
		counter(descMissed, float64(s.Schedule.MissedStalled), v.Place, v.Name, "stalled")
		counter(descLate, s.Schedule.LateSum.Seconds(), v.Place, v.Name)
		gauge(descLateMax, s.Schedule.LateMax.Seconds(), v.Place, v.Name)
		counter(descScheduled, float64(s.Schedule.Scheduled), v.Place, v.Name, "schedule")
		counter(descScheduled, float64(s.Schedule.OnDemand), v.Place, v.Name, "demand")
		counter(descPublished, float64(s.Outbox.Published), v.Place, v.Name)
		counter(descPublishErrors, float64(s.Outbox.PublishErrors), v.Place, v.Name)
		counter(descDropped, float64(s.Outbox.Dropped), v.Place, v.Name)
		gauge(descWaiting, float64(s.Outbox.Waiting), v.Place, v.Name)
	}
	for _, a := range c.Accepted {
		if n, known := a.Count(); known {
			counter(descAccepted, float64(n), a.Service, a.Instance)
		}
	}
	for _, b := range c.Heartbeats {
		s := b.Stats()
		counter(descBeats, float64(s.Beats), b.ID(), "taken")
		counter(descBeats, float64(s.Refused), b.ID(), "refused")
		gauge(descBeatAge, s.Age.Seconds(), b.ID())
	}
	if c.Observer == nil {
		return
	}
	for _, n := range c.Observer.Connections() {
		counter(descConnections, float64(n.Accepted), n.NetNS)
	}
	for _, target := range c.Observer.Targets() {
		service, instance, _ := strings.Cut(target, "/") // as configuration names targets
		if used, known := c.Observer.CPU(target); known {
			counter(descCPU, used.Seconds(), service, instance)
		}
	}
	h := c.Observer.Stats()
	counter(descSweeps, float64(h.Sweeps))
	counter(descDumps, float64(h.Dumps))
	counter(descExits, float64(h.Exits))
	counter(descUnseen, float64(h.Unseen))
	counter(descScans, float64(h.Scans))
	counter(descHostErrors, float64(h.Errors))
	for _, state := range []host.ConnectorState{host.ConnectorLive, host.ConnectorOff, host.ConnectorRefused, host.ConnectorDropped} {
		v := 0.0
		if state == h.Connector {
			v = 1
		}
		gauge(descConnector, v, string(state))
	}
	counter(descConnectorEvents, float64(h.ConnectorEvents))
	counter(descConnectorGaps, float64(h.ConnectorLost))
	counter(descConnectorResyncs, float64(h.ConnectorResyncs))
	counter(descConnectorDropped, float64(h.ConnectorDrops))
}
