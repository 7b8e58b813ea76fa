package core

import (
	"fmt"
	"io"
	"runtime"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
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
	observer *host.Observer // nil without an agent
	stops    []func()       // of the subscriptions to looks on demand
	closers  []io.Closer    // inside checks, whose own connections are waited for
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
	if !c.file.Agent.Enabled || len(c.compiled.Targets) == 0 {
		return nil
	}
	observer, err := host.New(host.Config{Targets: c.compiled.Targets}, host.Deps{Log: c.log.With("part", "host")})
	if err != nil {
		return fmt.Errorf("host observer on %s: %w", runtime.GOOS, err)
	}
	c.local.observer = observer
	c.run("host observer", observer.Run)
	inside, closers := jobs.Agent(c.compiled.Inside, observer)
	c.local.closers = closers
	return c.startVantage(evidence.Vantage{Place: hostPlace, Name: localAgent}, evidence.Agent, inside, observer.Changed())
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
