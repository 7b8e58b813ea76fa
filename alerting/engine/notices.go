package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/alerting/notify"
)

// notices is what the receivers are told of a step: one notice for each
// severity that was raised.
func (e *Engine) notices(s incident.Step, reason string) []notify.Notice {
	out := make([]notify.Notice, 0, len(s.Severities))
	for _, severity := range s.Severities {
		n := notify.Notice{
			Incident: s.Incident, Step: s.N, Severity: string(severity), Service: s.State.Scope.Service,
			Firing: s.Kind != incident.Closed, StartsAt: s.Onset,
			Verdict: s.State.Verdict.String(), Cause: string(s.Cause), Scope: s.State.Scope.String(),
			Summary: s.State.Sentence, Detail: evidenceText(s.State.Evidence), Reason: reason,
			Runbook: e.runbook(s.State.Scope.Service),
		}
		if !n.Firing {
			n.EndsAt = s.At
		}
		if e.cfg.ConsoleURL != "" {
			n.ConsoleURL = strings.TrimSuffix(e.cfg.ConsoleURL, "/") + "/"
		}
		out = append(out, n)
	}
	return out
}

func (e *Engine) runbook(service string) string {
	for _, s := range e.cfg.Policy.Services {
		if s.Name == service {
			return s.Runbook
		}
	}
	return ""
}

// evidenceText lists the evidence, inside and outside one under the other: a
// pager has no columns.
func evidenceText(refs []correlate.Ref) string {
	var b strings.Builder
	for _, side := range []correlate.Side{correlate.Inside, correlate.Outside} {
		for _, r := range refs {
			if r.Side == side {
				fmt.Fprintf(&b, "%s %s %s from %s/%s: %s\n", r.At.UTC().Format(time.TimeOnly), side, r.Outcome, r.Place, r.Vantage, r.Detail)
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
