//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// watchedYAML is what a user would write, with the outside look of every 2 s
// that the matrix asks for and every other number at its default.
const watchedYAML = `services:
  - name: web
    checks:
      - http: {url: "http://%[1]s/", body_contains: %[3]s}
        interval: 2s
      - port: {address: "%[1]s"}
      - workers: {pid_file: %[2]s%[4]s}
`

// watchedConfig is what Crosscheck is told of a server.
func watchedConfig(s servers.Spec, o servers.Options) []byte {
	pool := ""
	if s.Elastic {
		pool = ", on_demand: true"
	}
	return fmt.Appendf(nil, watchedYAML, o.Addr, o.PIDFile(), s.Answer, pool)
}

// change is one state of the service, as a person following it would note it.
type change struct {
	At    time.Time
	State correlate.State
}

// watch is an agent, a prober and a judge in one process: what alerting/engine
// does with evidence, without a store between and without a receiver.
type watch struct {
	observer *host.Observer
	log      *slog.Logger
	asks     map[evidence.Vantage]chan vantage.Ask

	mu sync.Mutex
	// mu guards the fields below.
	judge    *correlate.Judge
	book     *incident.Book
	cursor   uint64
	changes  []change
	steps    []incident.Step
	findings map[string]checks.Finding // the newest of each check
	news     chan struct{}             // closed and replaced whenever something came
	wake     chan struct{}
}

var (
	insideVantage  = evidence.Vantage{Place: "host", Name: "agent"}
	outsideVantage = evidence.Vantage{Place: "local", Name: "prober"}
)

// startWatch watches a server until ctx ends; the returned function waits for
// the end of all that it started.
func startWatch(ctx context.Context, srv *servers.Server, log *slog.Logger) (*watch, func(), error) {
	path := filepath.Join(srv.Options.Dir, "crosscheck.yml")
	if err := os.WriteFile(path, watchedConfig(srv.Spec, srv.Options), 0o600); err != nil {
		return nil, nil, err
	}
	file, faults := config.Load(path)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("configuration: %s", faults[0])
	}
	compiled := config.Compile(file)
	judge, err := correlate.New(compiled.Policy)
	if err != nil {
		return nil, nil, err
	}
	observer, err := host.New(host.Config{Targets: compiled.Targets}, host.Deps{Log: log})
	if err != nil {
		return nil, nil, err
	}
	w := &watch{
		observer: observer, log: log, judge: judge, book: incident.NewBook(compiled.Policy),
		findings: map[string]checks.Finding{}, news: make(chan struct{}), wake: make(chan struct{}, 1),
		asks: map[evidence.Vantage]chan vantage.Ask{insideVantage: make(chan vantage.Ask, 16), outsideVantage: make(chan vantage.Ask, 16)},
	}
	inside, closers := jobs.Agent(compiled.Inside, observer)
	outside, err := jobs.Probe(compiled.Outside)
	if err != nil {
		return nil, nil, err
	}
	if srv.Spec.FastCGI {
		for i := range outside {
			outside[i].Check = servers.Look{Server: srv, Body: srv.Spec.Answer}
		}
	}
	wait, err := w.run(ctx, inside, outside, closers)
	return w, wait, err
}

func (w *watch) run(ctx context.Context, inside, outside []vantage.Job, closers []io.Closer) (wait func(), err error) {
	agent, err := w.vantage(insideVantage, evidence.Agent, inside, w.observer.Changed())
	if err != nil {
		return nil, err
	}
	prober, err := w.vantage(outsideVantage, evidence.Prober, outside, nil)
	if err != nil {
		return nil, err
	}
	var parts sync.WaitGroup
	part := func(run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				w.log.Error("a part ended", "error", err)
			}
		})
	}
	part(w.observer.Run)
	part(agent.Run)
	part(prober.Run)
	part(w.tick)
	return func() {
		parts.Wait()
		for _, c := range closers {
			_ = c.Close() // always nil
		}
	}, nil
}

func (w *watch) vantage(v evidence.Vantage, kind evidence.VantageKind, live []vantage.Job, changed <-chan struct{}) (*vantage.Vantage, error) {
	return vantage.New(vantage.Config{Vantage: v, Kind: kind}, live, vantage.Deps{
		Publish: publisher{w, v}, Changed: changed, Asks: w.asks[v], Log: w.log.With("vantage", v.String()),
	})
}

// publisher takes a vantage's evidence straight to the judge.
type publisher struct {
	watch *watch
	from  evidence.Vantage
}

// Publish implements vantage.Publisher.
func (p publisher) Publish(_ context.Context, _ checks.Kind, _ string, body []byte) error {
	batch, err := evidence.Decode(p.from, body)
	if err != nil {
		return err
	}
	w := p.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	w.cursor++
	for _, e := range batch {
		w.findings[e.Check] = e.Finding
		w.applyLocked(w.judge.Observe(evidence.Stored{Evidence: e, At: now, Cursor: w.cursor}, now))
	}
	w.settleLocked(now)
	return nil
}

// nowLocked is the judge's now: our clock, never behind what was judged.
func (w *watch) nowLocked() time.Time {
	now := time.Now()
	if j := w.judge.Now(); j.After(now) {
		return j
	}
	return now
}

func (w *watch) applyLocked(changes []correlate.Change) {
	for _, c := range changes {
		w.changes = append(w.changes, change{c.At, c.To})
		w.steps = append(w.steps, w.book.Observe(c.To, c.At)...)
	}
}

// settleLocked does what follows a step of the judge.
func (w *watch) settleLocked(now time.Time) {
	w.steps = append(w.steps, w.book.Advance(now)...)
	for _, a := range w.judge.Asks() {
		select {
		case w.asks[a.Vantage] <- vantage.Ask{Check: a.Check, Trigger: a.Trigger}:
		default: // the vantage is behind: it looks by its schedule
		}
	}
	close(w.news)
	w.news = make(chan struct{})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tick moves the judge's time when something is due by time alone.
func (w *watch) tick(ctx context.Context) error {
	for {
		w.mu.Lock()
		next := time.Now().Add(time.Minute)
		for _, due := range []func() (time.Time, bool){w.judge.NextDeadline, w.book.NextDeadline} {
			if t, ok := due(); ok && t.Before(next) {
				next = t
			}
		}
		w.mu.Unlock()
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.wake:
			timer.Stop()
			continue
		case <-timer.C:
		}
		w.mu.Lock()
		now := w.nowLocked()
		w.applyLocked(w.judge.Advance(now))
		w.settleLocked(now)
		w.mu.Unlock()
	}
}

// lookNow asks for a look of every check.
func (w *watch) lookNow() {
	for v, checks := range map[evidence.Vantage][]string{insideVantage: {"web/port", "web/workers"}, outsideVantage: {"web/http"}} {
		for _, c := range checks {
			select {
			case w.asks[v] <- vantage.Ask{Check: c, Trigger: "matrix"}:
			default:
			}
		}
	}
}

// view is what is known at one moment.
type view struct {
	State    correlate.State
	Open     []incident.Step
	Changes  []change
	Steps    []incident.Step
	Findings map[string]checks.Finding
	Seen     *host.Snapshot // by the observer; nil before its first sweep
}

func (w *watch) viewLocked() view {
	v := view{State: w.judge.States()[0], Open: w.book.Open(), Changes: w.changes, Steps: w.steps, Findings: map[string]checks.Finding{}}
	for id, f := range w.findings {
		v.Findings[id] = f
	}
	if s, ok := w.observer.Snapshot("web/web"); ok {
		v.Seen = &s
	}
	return v
}

func (w *watch) view() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.viewLocked()
}

// await returns when ok holds, or ctx ends, with what was known last.
func (w *watch) await(ctx context.Context, ok func(view) bool) (view, bool) {
	for {
		w.mu.Lock()
		v, news := w.viewLocked(), w.news
		w.mu.Unlock()
		if ok(v) {
			return v, true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return w.view(), false
		}
	}
}
