// Package jobs makes live checks of configured ones. It is where kinds and
// configuration meet; both binaries use it.
package jobs

import (
	"fmt"
	"io"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
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

// Agent makes live checks of inside checks, on top of one host observer. Closing
// the closers, once nobody looks any more, waits for connections of their own.
func Agent(inside []config.InsideCheck, observer *host.Observer) (live []vantage.Job, closers []io.Closer) {
	for _, i := range inside {
		var check interface {
			checks.Check
			io.Closer
		}
		if i.Kind == checks.KindPort {
			check = portcheck.New(portcheck.Config{Target: i.Target, Listener: i.Listener}, observer)
		} else {
			check = workercheck.New(workercheck.Config{Target: i.Target}, observer)
		}
		closers = append(closers, check)
		live = append(live, vantage.Job{ID: i.ID, Kind: i.Kind, Check: check, Interval: i.Interval, Timeout: i.Timeout})
	}
	return live, closers
}
