//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/checks"
)

// result is what became of one run of one cell.
type result struct {
	Cell   cellID    `json:"cell"`
	At     time.Time `json:"at"`
	WallMS int64     `json:"wall_ms"`
	OK     bool      `json:"ok"`
	// Missing says what is not installed; Error what of our own did not work.
	Missing string `json:"missing,omitempty"`
	Error   string `json:"error,omitempty"`
	// Problems are what is wrong with what was judged.
	Problems []string `json:"problems,omitempty"`

	Verdict   correlate.Verdict   `json:"verdict"`
	Cause     correlate.Cause     `json:"cause,omitempty"`
	Rule      string              `json:"rule,omitempty"`
	Certainty correlate.Certainty `json:"certainty,omitempty"`
	Effects   []correlate.Cause   `json:"effects,omitempty"`
	Lifecycle string              `json:"lifecycle,omitempty"`
	Severity  incident.Severity   `json:"severity,omitempty"`
	Sentence  string              `json:"sentence,omitempty"`
	// KnownMS is the time from the fault to the expected cause; -1 if it was not
	// reached. FirstMS is the time to the first bad verdict of any cause.
	KnownMS   int64 `json:"known_ms"`
	FirstMS   int64 `json:"first_ms"`
	Incidents int   `json:"incidents"`
	// Trail is each change of state, with the time since the fault.
	Trail []string `json:"trail,omitempty"`
	// Facts are the newest findings of a wrong cell when it was decided.
	Facts  json.RawMessage `json:"facts,omitempty"`
	Output string          `json:"output,omitempty"`
}

// observation is what was seen of a cell.
type observation struct {
	LookAlike bool
	Known     bool
	KnownAt   time.Time
	AtKnown   view // when the cause was known, or else at the end
	View      view // at the end
}

// assess compares what was judged with what was expected.
func assess(w want, o observation, began time.Time) result {
	at := o.AtKnown
	if o.LookAlike {
		at = o.View
	}
	st := at.State
	r := result{Verdict: st.Verdict, Cause: st.Cause, Rule: st.Rule, Certainty: st.Certainty, Effects: st.Effects,
		Sentence: st.Sentence, Lifecycle: lifecycle(at), KnownMS: -1, FirstMS: -1}
	for _, c := range o.View.Changes {
		if c.State.Verdict.Bad() && !c.At.Before(began) {
			r.FirstMS = c.At.Sub(began).Milliseconds()
			break
		}
	}
	wrong := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	for _, s := range o.View.Steps {
		if s.Kind == incident.Opened {
			r.Incidents++
		}
		if n := len(s.Severities); n > 0 {
			r.Severity = s.Severities[n-1]
		}
	}
	if o.LookAlike {
		for _, s := range o.View.Steps {
			if s.Kind == incident.Opened {
				wrong("opened a %s: %s (rule %s): %s", s.Severities[0], s.Cause, s.State.Rule, s.State.Sentence)
			}
		}
		if !slices.Contains(w.verdicts(), st.Verdict) {
			wrong("verdict %s at the end, want %s", st.Verdict, w.Verdict)
		}
	} else {
		if o.Known {
			r.KnownMS = o.KnownAt.Sub(began).Milliseconds()
		} else {
			wrong("verdict %s, cause %q after %s, want %s, %s", st.Verdict, st.Cause, w.limit(), w.Verdict, causes(w.Causes))
		}
		w.assessIncident(o.View, wrong)
	}
	if len(w.Lifecycle) > 0 && !slices.Contains(w.Lifecycle, r.Lifecycle) {
		wrong("lifecycle %s, want %s", r.Lifecycle, strings.Join(w.Lifecycle, " or "))
	}
	return r
}

// assessIncident looks at what was told: one incident, of the right severity and
// cause.
func (w want) assessIncident(v view, wrong func(string, ...any)) {
	opened, seen := 0, false
	var last incident.Step
	for _, s := range v.Steps {
		seen = seen || s.State.Tally.Failing > 0
		if s.Kind == incident.Opened {
			opened++
		}
		last = s
	}
	switch {
	case opened != 1:
		wrong("%d incidents, want 1", opened)
	case !slices.Contains(w.Causes, last.Cause):
		wrong("the incident is put down to %s, want %s", last.Cause, causes(w.Causes))
	default:
		told := last.Severities[len(last.Severities)-1]
		if told != w.Severity && (told != incident.Page || !w.PageIfSeen || !seen) {
			wrong("a %s, want a %s", told, w.Severity)
		}
	}
	if w.Because != "" && last.State.Because != w.Because {
		wrong("because %q, want %s", last.State.Because, w.Because)
	}
}

func causes(all []correlate.Cause) string {
	var words []string
	for _, c := range all {
		words = append(words, string(c))
	}
	return strings.Join(words, " or ")
}

// lifecycle is the instance's, by what the workers kind shows (JUDGING section
// 1).
func lifecycle(v view) string {
	w := v.Findings["web/workers"].Workers
	switch {
	case w == nil:
		return "unknown"
	case w.Main.State == checks.ProcGone && w.Stopping:
		return "stopped"
	case w.Main.State == checks.ProcGone:
		return "gone"
	case w.Stopping:
		return "stopping"
	case !w.EverServed:
		return "starting"
	}
	return "serving"
}

// facts are the newest findings, and what the observer saw last, as JSON.
func facts(v view) json.RawMessage {
	all := map[string]any{}
	for id, f := range v.Findings {
		all[id] = f
	}
	if v.Seen != nil {
		all["observer"] = v.Seen
	}
	return json.RawMessage(mustJSON(all))
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%q", err)
	}
	return string(raw)
}

// trail tells the changes in short lines.
func trail(changes []change, began time.Time) []string {
	var lines []string
	for _, c := range changes {
		s := c.State
		line := fmt.Sprintf("%+.3fs %s", c.At.Sub(began).Seconds(), s.Verdict)
		if s.Verdict.Bad() {
			line += fmt.Sprintf(" %s by %s %s", s.Cause, s.Rule, s.Certainty)
			if len(s.Effects) > 0 {
				line += " with " + causes(s.Effects)
			}
			if s.Page {
				line += ", page"
			}
			line += ": " + s.Sentence
		}
		lines = append(lines, line)
	}
	return lines
}
