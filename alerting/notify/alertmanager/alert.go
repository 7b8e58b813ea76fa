package alertmanager

import (
	"strconv"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
)

// alertName is the alertname label of everything Crosscheck sends.
const alertName = "CrosscheckIncident"

// postableAlert is one element of the array that POST /api/v2/alerts takes
// (Alertmanager, api/v2/openapi.yaml, postableAlert).
type postableAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// alertID is what Alertmanager tells alerts apart by, besides the constant
// alertname: the label set (JUDGING section 7).
type alertID struct{ service, incident, severity string }

func idOf(n notify.Notice) alertID { return alertID{n.Service, n.Incident, n.Severity} }

// alert is one incident and severity as the Alertmanagers should see it.
type alert struct {
	notice notify.Notice
	// startsAt stays the same over resends and is never in the future.
	startsAt time.Time
	// resolvedAt is zero while firing.
	resolvedAt time.Time
}

// update takes in a newer notice.
func (a *alert) update(n notify.Notice, now time.Time) {
	reopened := n.Firing && !a.resolvedAt.IsZero()
	if a.startsAt.IsZero() || reopened {
		a.startsAt = now
		if !n.StartsAt.IsZero() && n.StartsAt.Before(now) {
			a.startsAt = n.StartsAt
		}
	}
	switch {
	case n.Firing:
		a.resolvedAt = time.Time{}
	case a.resolvedAt.IsZero():
		a.resolvedAt = now
		if a.resolvedAt.Before(a.startsAt) { // our clock was set back; Alertmanager refuses an end before the start
			a.resolvedAt = a.startsAt
		}
	}
	a.notice = n
}

// postable renders the alert as of now. endsAt is always set: without it
// Alertmanager's resolve_timeout would end a firing alert by itself.
func (a *alert) postable(now time.Time) postableAlert {
	n := a.notice
	endsAt := a.resolvedAt
	if endsAt.IsZero() {
		endsAt = now.Add(Validity)
	}
	return postableAlert{
		Labels: map[string]string{
			"alertname": alertName,
			"service":   n.Service,
			"incident":  n.Incident,
			"severity":  n.Severity,
		},
		Annotations:  annotations(n),
		StartsAt:     a.startsAt.UTC(),
		EndsAt:       endsAt.UTC(),
		GeneratorURL: n.ConsoleURL,
	}
}

// annotations carry everything that may change while the alert stays the same.
func annotations(n notify.Notice) map[string]string {
	all := map[string]string{
		"summary":     n.Summary,
		"description": n.Detail,
		"verdict":     n.Verdict,
		"cause":       n.Cause,
		"scope":       n.Scope,
		"reason":      n.Reason,
		"runbook_url": n.Runbook,
		"console_url": n.ConsoleURL,
		"step":        strconv.FormatUint(n.Step, 10),
	}
	for k, v := range all {
		if v == "" {
			delete(all, k)
		}
	}
	return all
}
