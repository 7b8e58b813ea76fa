package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/heartbeats"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// options are the flags of agent and prober.
type options struct {
	config, listen, place string
	log                   cli.Log
}

func runCommand(kind evidence.VantageKind, short string) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: string(kind), Short: short, Args: cli.Args(cobra.NoArgs),
		Long: short + `, as a configuration file says, with its findings on /metrics and
every change of one in the log. It runs alone: it sends its evidence to nobody.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, kind, o) },
	}
	cmd.Flags().StringVarP(&o.config, "config", "c", "crosscheck.yml", "configuration file")
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:9848", "address of /metrics and /heartbeat")
	if kind == evidence.Prober {
		cmd.Flags().StringVar(&o.place, "place", "", "which of the file's places this is; may be left out if there is but one")
	}
	o.log.AddFlags(cmd, "info")
	return cmd
}

func run(cmd *cobra.Command, kind evidence.VantageKind, o options) error {
	log, endLog, err := o.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer endLog()
	file, faults := config.Load(o.config)
	for _, f := range faults {
		log.Error("configuration", "fault", f.String())
	}
	if file == nil {
		return fmt.Errorf("%s: nothing to look at, see the faults above", o.config)
	}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	p, err := looks(file, kind, o.place, log)
	if err != nil {
		return err
	}
	defer p.close()
	sink := &sink{log: log, from: p.me, outcomes: map[string]checks.Outcome{}}
	deps := vantage.Deps{Publish: sink, Log: log}
	if p.observer != nil {
		deps.Changed = p.observer.Changed()
	}
	deps.Changed = p.beats.Changed(deps.Changed)
	v, err := vantage.New(vantage.Config{Vantage: p.me, Kind: kind}, p.live, deps)
	if err != nil {
		return err
	}
	srv, err := webServer(sink, vantagemetrics.Collector{Vantages: map[evidence.Vantage]*vantage.Vantage{p.me: v}, Observer: p.observer,
		Accepted: p.accepted, Heartbeats: p.beats.Checks()}, p.beats)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	if p.observer != nil {
		part("host observer", p.observer.Run)
	}
	part("heartbeats", p.beats.Run)
	part("web server", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		return srv.Serve(l)
	})
	log.Info("looking", "kind", kind, "checks", len(p.live), "metrics", "http://"+l.Addr().String()+"/metrics")
	part("vantage", v.Run)
	<-ctx.Done()
	wg.Wait()
	if cmd.Context().Err() != nil {
		return nil // we were told to end
	}
	return context.Cause(ctx)
}

// plan is who this vantage is and what it looks at.
type plan struct {
	me       evidence.Vantage
	live     []vantage.Job
	observer *host.Observer // nil for a prober, and for heartbeats alone
	beats    *heartbeats.Set
	closers  []io.Closer
	accepted []vantagemetrics.Accepted
}

func (p *plan) close() {
	for _, c := range p.closers {
		_ = c.Close() // always nil
	}
}

// looks makes the plan a configuration asks of this kind of vantage.
func looks(file *config.File, kind evidence.VantageKind, place string, log *slog.Logger) (*plan, error) {
	compiled := config.Compile(file)
	if kind == evidence.Agent {
		return agentLooks(file, compiled, log)
	}
	none, err := heartbeats.New(nil, log)
	if err != nil {
		return nil, err
	}
	for _, p := range file.Places {
		if p.Name != place && (place != "" || len(file.Places) > 1) {
			continue
		}
		live, err := jobs.Probe(compiled.OutsideIn(p.Region))
		if err == nil && len(live) == 0 {
			err = fmt.Errorf("%s: no outside check to make from place %s", file.Path, p.Name)
		}
		return &plan{me: evidence.Vantage{Place: p.Name, Name: "prober"}, live: live, beats: none}, err
	}
	if place == "" {
		return nil, cli.Usage{Err: fmt.Errorf("%s has %d places: say which with --place", file.Path, len(file.Places))}
	}
	return nil, cli.Usage{Err: fmt.Errorf("--place: %s has no place %q", file.Path, place)}
}

// agentLooks makes the plan of an agent.
func agentLooks(file *config.File, compiled config.Compiled, log *slog.Logger) (*plan, error) {
	if len(compiled.Inside) == 0 {
		return nil, fmt.Errorf("%s: no inside check to make", file.Path)
	}
	beats, err := heartbeats.New(compiled.Inside, log)
	if err != nil {
		return nil, err
	}
	p := &plan{me: evidence.Vantage{Place: "host", Name: "agent"}, live: beats.Jobs(), beats: beats}
	if len(compiled.Targets) == 0 {
		return p, nil
	}
	if p.observer, err = host.New(host.Config{Targets: compiled.Targets}, host.Deps{Log: log}); err != nil {
		return nil, err
	}
	inside, closers := jobs.Agent(compiled.Inside, p.observer)
	p.live, p.closers, p.accepted = append(p.live, inside...), closers, jobs.Accepted(compiled.Inside, inside)
	return p, nil
}

var descOutcome = prometheus.NewDesc("crosscheck_check_outcome",
	"1 for the outcome of a check's newest look, 0 for the others.", []string{"check", "outcome"}, nil)

// sink takes the evidence in the place of a core: it remembers each check's
// outcome and logs its changes.
type sink struct {
	log  *slog.Logger
	from evidence.Vantage

	// mu guards the field below.
	mu       sync.Mutex
	outcomes map[string]checks.Outcome
}

// Publish implements vantage.Publisher.
func (s *sink) Publish(_ context.Context, _ checks.Kind, _ string, body []byte) error {
	batch, err := evidence.Decode(s.from, body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range batch {
		if old, known := s.outcomes[e.Check]; !known || old != e.Finding.Outcome {
			s.log.Info("finding", "check", e.Check, "outcome", e.Finding.Outcome, "reason", e.Finding.Reason, "detail", e.Finding.Detail)
		}
		s.outcomes[e.Check] = e.Finding.Outcome
	}
	return nil
}

// Describe implements prometheus.Collector.
func (s *sink) Describe(ch chan<- *prometheus.Desc) { ch <- descOutcome }

// Collect implements prometheus.Collector.
func (s *sink) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for check, is := range s.outcomes {
		for _, o := range []checks.Outcome{checks.Blind, checks.Pass, checks.Warn, checks.Fail} {
			v := 0.0
			if o == is {
				v = 1
			}
			ch <- prometheus.MustNewConstMetric(descOutcome, prometheus.GaugeValue, v, check, o.String())
		}
	}
}

func webServer(sink *sink, v vantagemetrics.Collector, beats *heartbeats.Set) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), sink, v} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle(heartbeats.Path, beats.Handler())
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, nil
}
