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
	toldWithin   = 10 * time.Second // page or ticket, unless the fault says otherwise
	healWithin   = 60 * time.Second
	watchHealthy = 6 * time.Second // past every window that could page (JUDGING section 3)
	afterTicket  = 3 * time.Second // a page that must not follow would have come by then
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
      - {name: front, interval: 1s, http: {url: "http://%s/", timeout: 1s, body_contains: hello from worker}}
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
	var err error
	if r.Worker, err = s.fault.inject(s.lab); err != nil {
		return nil, fmt.Errorf("inject %s: %w", s.fault.name, err)
	}
	if s.fault.lookAlike() {
		err = s.watchNothingHappen(ctx, r)
	} else {
		err = s.watchFault(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	r.Pages, r.Resolves = s.pager.CountsOf(pager.Page)
	r.Tickets, r.TicketResolves = s.pager.CountsOf(pager.Ticket)
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

// watchFault is the cycle of what must page or make a ticket, and then resolve.
func (s *stage) watchFault(ctx context.Context, r *Report) error {
	call, err := s.awaitCall(ctx, s.fault.patience(), s.fault.severity(), true)
	if err != nil {
		return fmt.Errorf("fault %s: nobody was told: %w", s.fault.name, err)
	}
	r.Told = call.Summary
	severity := call.Severity
	if severity == pager.Page {
		r.PagedAt = stamp{call.At}
	} else {
		r.TicketedAt = stamp{call.At}
	}
	if err := s.awaitCause(ctx, r); err != nil {
		return err
	}
	s.say.fault(r, s.lab)
	if severity == pager.Ticket {
		if err := s.pause(ctx, afterTicket); err != nil {
			return err
		}
	}
	if !s.o.Once {
		if err := s.pause(ctx, healthyFor); err != nil { // time to read
			return err
		}
		s.say.later(s.view(ctx), severity)
	}
	if err := s.fault.heal(s.lab, r.Worker); err != nil {
		return fmt.Errorf("heal %s: %w", s.fault.name, err)
	}
	r.HealedAt = stamp{time.Now()}
	s.say.heal()
	resolve, err := s.awaitCall(ctx, healWithin, severity, false)
	if err != nil {
		return fmt.Errorf("fault %s: no resolve: %w", s.fault.name, err)
	}
	r.ResolvedAt = stamp{resolve.At}
	s.say.resolved(r)
	return s.pause(ctx, settle)
}

// awaitCause waits until the incident has the expected verdict and cause. The
// outside may have been faster than the inside's proof, or a queue that fills
// than the proof of why: better knowledge then edits the open page or ticket
// (JUDGING section 6).
func (s *stage) awaitCause(ctx context.Context, r *Report) error {
	var v engine.View
	verdict := s.fault.verdictOf(s.o.Listener)
	err := s.await(ctx, s.fault.patience(), "cause "+string(s.fault.cause), func(now engine.View) bool {
		v = now
		return len(v.Open) > 0 && v.Open[0].Cause == s.fault.cause && v.Open[0].State.Verdict == verdict
	})
	if len(v.Open) == 0 {
		return fmt.Errorf("the pager was told and the core shows no incident: %w", err)
	}
	last := v.Open[0]
	r.take(last.State, last.Onset, last.OpenedAt)
	r.Cause = last.Cause
	return nil
}

func (r *Report) take(st correlate.State, onset, verdictAt time.Time) {
	r.Verdict, r.Cause, r.Scope, r.Rule, r.Sentence, r.Evidence = st.Verdict, st.Cause, st.Scope, st.Rule, st.Sentence, st.Evidence
	r.FirstEvidenceAt, r.VerdictAt = stamp{onset}, stamp{verdictAt}
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
