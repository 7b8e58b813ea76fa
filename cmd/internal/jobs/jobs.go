// Package jobs makes live checks of configured ones. It is where kinds and
// configuration meet; both binaries use it.
package jobs

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
	"github.com/crosscheck-project/crosscheck/checks/portcheck"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// Probe makes live checks of outside checks.
func Probe(outside []config.OutsideCheck) ([]vantage.Job, error) {
	var jobs []vantage.Job
	for _, o := range outside {
		check, err := httpcheck.New(o.HTTP)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", o.ID, err)
		}
		jobs = append(jobs, vantage.Job{ID: o.ID, Kind: checks.KindHTTP, Check: check, Interval: o.Interval, Timeout: o.Timeout})
	}
	return jobs, nil
}

// Local says how our own connections to a target are made: in the network
// namespace of its listeners, and whether they were accepted the kernel tells.
func Local(observer *host.Observer, target string) local.Deps {
	return local.Deps{
		Dial: local.Through(func(f func() error) error { return observer.InNamespace(target, f) }),
		Accepted: func(client, server netip.AddrPort) (accepted, known bool) {
			return observer.Accepted(target, client, server)
		},
	}
}

// Agent makes live checks of inside checks, on top of one host observer; those
// that take heartbeats are made by package heartbeats. Closing
// the closers, once nobody looks any more, waits for connections of their own.
func Agent(configured []config.InsideCheck, observer *host.Observer) (live []vantage.Job, closers []io.Closer) {
	pool := &local.Pool{} // one connection of ours in flight to each listener
	for _, i := range configured {
		if i.Kind == checks.KindHeartbeat {
			continue
		}
		own := Local(observer, i.Target)
		var check interface {
			checks.Check
			io.Closer
		}
		if i.Kind == checks.KindPort {
			check = portcheck.New(portcheck.Config{Target: i.Target, Listener: i.Listener, Path: i.Path}, observer, portcheck.Deps{Pool: pool, Local: own})
		} else {
			check = workercheck.New(workercheck.Config{Target: i.Target, Minimum: i.Minimum, OnDemand: i.OnDemand}, observer, workercheck.Deps{Pool: pool, Local: own, Status: Status(i.Status)})
		}
		closers = append(closers, check)
		live = append(live, vantage.Job{ID: i.ID, Kind: i.Kind, Check: check, Interval: i.Interval, Timeout: i.Timeout})
	}
	return live, append(closers, pool)
}
