package core

import (
	"fmt"
	"io"
	"runtime"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/heartbeats"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// The names of the vantages that live in the core's own process. A place has
// one prober; the agent's place is the host.
const (
	localProber = "prober"
	localAgent  = "agent"
	hostPlace   = "host"
)

// locals are the vantages of this process.
type locals struct {
	vantages map[evidence.Vantage]*vantage.Vantage
	observer *host.Observer // nil unless processes or listeners are watched
	beats    *heartbeats.Set
	stops    []func()    // of the subscriptions to looks on demand
	closers  []io.Closer // inside checks, whose own connections are waited for
	accepted []vantagemetrics.Accepted
}

func (l *locals) close() {
	for _, stop := range l.stops {
		stop()
	}
	for _, c := range l.closers {
		_ = c.Close() // always nil
	}
}

// startLocals starts a prober for each place that has something to look at,
// and the agent.
func (c *Core) startLocals() error {
	c.local = &locals{vantages: map[evidence.Vantage]*vantage.Vantage{}}
	for _, p := range c.file.Places {
		outside, err := jobs.Probe(c.compiled.OutsideIn(p.Region))
		if err != nil {
			return err
		}
		if len(outside) == 0 {
			continue
		}
		if err := c.startVantage(evidence.Vantage{Place: p.Name, Name: localProber}, evidence.Prober, outside, nil); err != nil {
			return err
		}
	}
	return c.startAgent()
}

// startAgent starts the observer, if there is something for it to watch, and the
// vantage of the host.
func (c *Core) startAgent() (err error) {
	if c.local.beats, err = heartbeats.New(c.compiled.Inside, c.log.With("part", "heartbeats")); err != nil {
		return err
	}
	if !c.file.Agent.Enabled || len(c.compiled.Inside) == 0 {
		return nil
	}
	looks := c.local.beats.Jobs()
	var changed <-chan struct{}
	if len(c.compiled.Targets) > 0 {
		observer, err := host.New(host.Config{Targets: c.compiled.Targets}, host.Deps{Log: c.log.With("part", "host")})
		if err != nil {
			return fmt.Errorf("host observer on %s: %w", runtime.GOOS, err)
		}
		c.local.observer = observer
		c.run("host observer", observer.Run)
		inside, closers := jobs.Agent(c.compiled.Inside, observer)
		c.local.closers, c.local.accepted = closers, jobs.Accepted(c.compiled.Inside, inside)
		looks, changed = append(looks, inside...), observer.Changed()
	}
	changed = c.local.beats.Changed(changed)
	c.run("heartbeats", c.local.beats.Run)
	return c.startVantage(evidence.Vantage{Place: hostPlace, Name: localAgent}, evidence.Agent, looks, changed)
}

func (c *Core) startVantage(v evidence.Vantage, kind evidence.VantageKind, looks []vantage.Job, changed <-chan struct{}) error {
	asked, stop, err := asks(c.wire, v)
	if err != nil {
		return err
	}
	c.local.stops = append(c.local.stops, stop)
	vt, err := vantage.New(vantage.Config{Vantage: v, Kind: kind}, looks, vantage.Deps{
		Publish: publisher{c.wire, v, &c.store}, Changed: changed, Asks: asked, Log: c.log.With("part", "vantage", "vantage", v.String()),
	})
	if err != nil {
		return err
	}
	c.local.vantages[v] = vt
	c.run("vantage "+v.String(), vt.Run)
	return nil
}
