package core

import (
	"context"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/console"
	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
)

// View returns what the engine knows now.
func (c *Core) View(ctx context.Context) (engine.View, error) { return c.engine.View(ctx) }

// viewWithin is how long a reader waits for the engine. While it waits for its
// journal it answers nobody, and the console says so (chosen: a person's
// patience, and well over an append's few milliseconds).
const viewWithin = time.Second

// consoleView is the engine's view in the console's words. If the engine does
// not answer, it is a view without a time, which the console calls stale.
func (c *Core) consoleView() console.View {
	ctx, cancel := context.WithTimeout(context.Background(), viewWithin)
	defer cancel()
	out := console.View{Refusals: c.refusals()}
	v, err := c.engine.View(ctx)
	if err != nil {
		return out
	}
	out.GeneratedAt, out.Ready = v.At, v.Ready
	open := map[correlate.Scope]incident.Step{}
	for _, s := range v.Open {
		open[wholeService(s.State.Scope)] = s
	}
	for _, s := range v.Services {
		out.Services = append(out.Services, row(s, open[wholeService(s.State.Scope)]))
	}
	out.Incidents = incidents(v.History)
	return out
}

func wholeService(s correlate.Scope) correlate.Scope {
	s.Instance = ""
	return s
}

func row(s engine.ServiceView, open incident.Step) console.Row {
	r := console.Row{
		Service: s.State.Scope.Service, Region: s.State.Scope.Region, Verdict: s.State.Verdict.String(),
		Cause: string(s.State.Cause), Certainty: string(s.State.Certainty), Sentence: s.State.Sentence,
		Since: s.State.Since, Incident: open.Incident,
	}
	for _, e := range s.Evidence {
		line := console.Line{
			Check: e.Check, Source: e.Place + "/" + e.Vantage, Outcome: e.Outcome.String(),
			Reason: string(e.Reason), Text: e.Detail, At: e.At,
		}
		if e.Side == correlate.Inside {
			r.Inside = append(r.Inside, line)
		} else {
			r.Outside = append(r.Outside, line)
		}
	}
	return r
}

// incidents lists each incident of the history once, as its newest step has it,
// the newest first. A closed one is named by the cause it had.
func incidents(history []incident.Step) []console.Incident {
	var out []console.Incident
	seen := map[string]bool{}
	for _, s := range slices.Backward(history) {
		if seen[s.Incident] {
			continue
		}
		seen[s.Incident] = true
		i := console.Incident{
			ID: s.Incident, Service: s.State.Scope.Service, Region: s.State.Scope.Region, Verdict: s.State.Verdict.String(),
			Severity: string(s.Severities[len(s.Severities)-1]), Cause: string(s.Cause),
			Certainty: string(s.State.Certainty), Sentence: s.State.Sentence, OpenedAt: s.OpenedAt,
		}
		if s.Kind == incident.Closed {
			i.ClosedAt = s.At
		}
		out = append(out, i)
	}
	return out
}

func (c *Core) refusals() []console.Refusal {
	var out []console.Refusal
	for _, r := range c.file.Refused {
		for _, f := range r.Faults {
			out = append(out, console.Refusal{Service: r.Service, File: f.File, Line: f.Line, Path: f.Path, Message: f.Message})
		}
	}
	return out
}
