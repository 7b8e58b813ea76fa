package jobs

import (
	"context"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// Status makes what the workers kind asks of what a configuration names: nil for
// the zero value. What is wrong with s is said by each answer.
func Status(s config.Status) func(context.Context) (workercheck.Said, error) {
	if s.Server == "" {
		return nil
	}
	src, err := serverstatus.New(s.Server, s.Place)
	return func(ctx context.Context) (workercheck.Said, error) {
		if err != nil {
			return workercheck.Said{}, err
		}
		got, err := src.Read(ctx)
		return workercheck.Said{Text: got.Text, Accepted: got.Accepted, AcceptedKnown: got.AcceptedKnown, OutOfBand: got.OutOfBand}, err
	}
}

// Accepted tells, for each instance whose server is asked, where to read how many
// connections it took. live are the jobs that Agent made of inside.
func Accepted(inside []config.InsideCheck, live []vantage.Job) []vantagemetrics.Accepted {
	workers := map[string]*workercheck.Check{}
	for _, j := range live {
		if check, ok := j.Check.(*workercheck.Check); ok {
			workers[j.ID] = check
		}
	}
	var all []vantagemetrics.Accepted
	for _, i := range inside {
		if check := workers[i.ID]; check != nil && i.Status.Server != "" {
			all = append(all, vantagemetrics.Accepted{Service: i.Service, Instance: i.Instance, Count: check.Accepted})
		}
	}
	return all
}
