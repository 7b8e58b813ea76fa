// Package demo shows the founding story on real parts: a load balancer whose
// main process lives while its workers die, seen from outside and inside,
// judged, and paged. It contains no detection of its own: what it prints it
// asked of the same core that serve runs.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/core"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

// Options are what the command line says.
type Options struct {
	Fault    string // one of Faults
	Listener string // "shared" or "reuseport"
	Once     bool   // end after one cycle instead of waiting for a person
	JSON     string // where the report goes; empty for nowhere
	Listen   string // address of the console
	Out      io.Writer
	Color    bool
	Log      *slog.Logger
}

// The pacing and the patience of the demo. None of them is part of a
// measurement.
const (
	respawn      = 100 * time.Millisecond // as the issue of Sōzu's story paces it
	workers      = 4
	closeAfter   = 3 * time.Second  // JUDGING section 4, close_after of the demo
	healthyFor   = 3 * time.Second  // a few healthy seconds before the fault
	startWithin  = 30 * time.Second // all green by then, or the demo gives up
	pageWithin   = 10 * time.Second
	healWithin   = 20 * time.Second
	watchHealthy = 6 * time.Second // past every window that could page (JUDGING section 3)
	settle       = 2 * time.Second // a second page or resolve would come by then
	look         = 20 * time.Millisecond
)

// Run runs the demo. It returns an error if the story did not go as it must.
func Run(ctx context.Context, o Options) error {
	f, err := faultNamed(o.Fault)
	if err != nil {
		return err
	}
	if o.JSON != "" { // before anything is measured for nothing
		if err := os.WriteFile(o.JSON, nil, 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	s := &stage{o: o, fault: f, say: newStory(o.Out, o.Color)}
	defer s.stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	report, err := s.cycle(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if o.JSON != "" {
		if err := report.write(o.JSON); err != nil {
			return err
		}
	}
	if err := report.Check(); err != nil {
		return err
	}
	s.say.end(report, o)
	if o.Once {
		return nil
	}
	s.say.console("http://" + s.core.Addr().String())
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.core.Failed():
		return err
	}
}

// stage is everything the demo starts.
type stage struct {
	o     Options
	fault fault
	say   *story

	dir   string
	lab   *lab.Lab
	pager *pager.Pager
	core  *core.Core
}

func (s *stage) start(ctx context.Context) (err error) {
	s.say.title()
	if s.dir, err = os.MkdirTemp("", "crosscheck-demo-"); err != nil {
		return err
	}
	if s.pager, err = pager.Start(); err != nil {
		return err
	}
	if s.lab, err = lab.Start(ctx, lab.Options{Listener: s.o.Listener, Workers: workers, Respawn: respawn, PIDFile: filepath.Join(s.dir, "lab.pid")}); err != nil {
		return fmt.Errorf("start the lab: %w", err)
	}
	s.say.lab(s.lab, s.o.Listener)
	file, err := s.config()
	if err != nil {
		return err
	}
	if s.core, err = core.Start(ctx, file, s.o.Log); err != nil {
		return err
	}
	s.say.started(s.core.Addr())
	return nil
}

func (s *stage) stop() {
	if s.core != nil {
		s.core.Stop()
	}
	if s.lab != nil {
		s.lab.Stop()
	}
	if s.pager != nil {
		s.pager.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // a temporary directory; nothing depends on it
	}
}

// config writes the configuration a user would write, and loads it the way
// serve does.
func (s *stage) config() (*config.File, error) {
	am := filepath.Join(s.dir, "alertmanager.yml")
	if err := os.WriteFile(am, s.pager.AlertmanagerConfig(), 0o600); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, "crosscheck.yml")
	yml := fmt.Sprintf(crosscheckYML, s.o.Listen, closeAfter, s.lab.Addr(), s.lab.Addr(), s.lab.PIDFile())
	if err := os.WriteFile(path, []byte(yml), 0o600); err != nil {
		return nil, err
	}
	file, faults := config.Load(path)
	if file == nil || len(faults) > 0 {
		return nil, fmt.Errorf("the demo's own configuration is refused: %v", faults)
	}
	return file, nil
}

const crosscheckYML = `data_dir: data
listen: %s
places:
  - {name: paris, region: par, network: isp-a}
  - {name: london, region: par, network: isp-b}
  - {name: frankfurt, region: par, network: isp-c}
alertmanager: {config_file: alertmanager.yml}
services:
  - name: public-lb
    region: par
    close_after: %s
    checks:
      - {name: front, interval: 1s, http: {url: "http://%s/", timeout: 1s}}
      - {interval: 1s, port: {address: "%s"}}
      - {interval: 1s, workers: {pid_file: %s}}
`

// cycle is one fault from a healthy start to a healthy end.
func (s *stage) cycle(ctx context.Context) (*Report, error) {
	if err := s.await(ctx, startWithin, "everything to be up", s.allGreen); err != nil {
		return nil, err
	}
	s.say.healthy(s.view(ctx))
	if err := s.pause(ctx, healthyFor); err != nil {
		return nil, err
	}
	r := &Report{Fault: s.fault.name, Listener: s.o.Listener, RespawnPacingMS: respawn.Milliseconds(), expected: s.fault}
	s.say.inject(s.fault)
	r.InjectedAt = stamp{time.Now()}
	if err := s.fault.inject(s.lab); err != nil {
		return nil, fmt.Errorf("inject %s: %w", s.fault.name, err)
	}
	var err error
	if s.fault.pages == 0 {
		err = s.watchNothingHappen(ctx, r)
	} else {
		err = s.watchFault(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	r.Pages, r.Resolves = s.pager.Counts()
	return r, nil
}

// watchNothingHappen is the cycle of what must not page.
func (s *stage) watchNothingHappen(ctx context.Context, r *Report) error {
	if err := s.pause(ctx, watchHealthy); err != nil {
		return err
	}
	v := s.view(ctx)
	if len(v.History) > 0 {
		r.take(v.History[len(v.History)-1].State, v.History[0].Onset, v.History[0].OpenedAt)
		return nil
	}
	r.take(v.Services[0].State, time.Time{}, time.Time{})
	r.Evidence = v.Services[0].Evidence
	s.say.nothing(r, s.lab)
	return nil
}

// watchFault is the cycle of what must page, and then resolve.
func (s *stage) watchFault(ctx context.Context, r *Report) error {
	page, err := s.awaitCall(ctx, pageWithin, true)
	if err != nil {
		return fmt.Errorf("fault %s: no page: %w", s.fault.name, err)
	}
	r.PagedAt = stamp{page.At}
	// The outside may have been faster than the inside's proof: better knowledge
	// then edits the open page (JUDGING section 6).
	var v engine.View
	if err := s.await(ctx, pageWithin, "cause "+string(s.fault.cause), func(now engine.View) bool {
		v = now
		return len(v.Open) > 0 && v.Open[0].Cause == s.fault.cause
	}); err != nil && len(v.Open) == 0 {
		return fmt.Errorf("a page arrived and the core shows no incident: %w", err)
	}
	last := v.Open[0]
	r.take(last.State, last.Onset, last.OpenedAt)
	r.Cause = last.Cause
	s.say.fault(r, s.lab, s.fault)
	if !s.o.Once {
		if err := s.pause(ctx, healthyFor); err != nil { // time to read
			return err
		}
		s.say.later(s.view(ctx))
	}
	if err := s.fault.heal(s.lab); err != nil {
		return fmt.Errorf("heal %s: %w", s.fault.name, err)
	}
	r.HealedAt = stamp{time.Now()}
	s.say.heal()
	resolve, err := s.awaitCall(ctx, healWithin, false)
	if err != nil {
		return fmt.Errorf("fault %s: no resolve: %w", s.fault.name, err)
	}
	r.ResolvedAt = stamp{resolve.At}
	s.say.resolved(r)
	return s.pause(ctx, settle)
}

func (r *Report) take(st correlate.State, onset, verdictAt time.Time) {
	r.Verdict, r.Cause, r.Scope, r.Rule, r.Sentence, r.Evidence = st.Verdict, st.Cause, st.Scope, st.Rule, st.Sentence, st.Evidence
	r.FirstEvidenceAt, r.VerdictAt = stamp{onset}, stamp{verdictAt}
}

func (s *stage) view(ctx context.Context) engine.View {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	v, err := s.core.View(ctx)
	if err != nil {
		return engine.View{Services: make([]engine.ServiceView, 1)}
	}
	return v
}

// allGreen: the service is up, every place saw it pass, and the agent has
// learnt how many workers there are.
func (s *stage) allGreen(v engine.View) bool {
	st := v.Services[0]
	inside, outside := 0, 0
	for _, e := range st.Evidence {
		if e.Outcome != checks.Pass {
			return false
		}
		if e.Side == correlate.Inside {
			inside++
		} else {
			outside++
		}
	}
	return st.State.Verdict == correlate.Up && inside == 2 && outside == 3
}

func (s *stage) await(ctx context.Context, limit time.Duration, what string, ok func(engine.View) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if ok(s.view(ctx)) {
			return nil
		}
		if err := s.pause(ctx, look); err != nil {
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
	}
}

// awaitCall waits until the pager received a page, or the resolve of one.
func (s *stage) awaitCall(ctx context.Context, limit time.Duration, firing bool) (pager.Call, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("waited %s", limit)) })
	defer timer.Stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-s.core.Failed():
			cancel(err)
		case <-done:
		}
	}()
	return s.pager.Await(ctx, firing)
}

func (s *stage) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-s.core.Failed():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CheckOptions refuses what Run could not run, before anything is started.
func CheckOptions(o Options) error {
	if _, err := faultNamed(o.Fault); err != nil {
		return err
	}
	if o.Listener != lab.Shared && o.Listener != lab.Reuseport {
		return fmt.Errorf("unknown listener %q; there are: %s, %s", o.Listener, lab.Shared, lab.Reuseport)
	}
	return nil
}
