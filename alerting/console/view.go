// Package console shows a person what Crosscheck thinks: one page, one style
// sheet, and the same as JSON. It is given a View for each request and renders
// it; it judges nothing, keeps nothing, and changes nothing.
package console

import "time"

// View is everything the console shows, at one moment. Its JSON is the body of
// GET /api/v1/status: names are added, never renamed. Times are RFC 3339.
type View struct {
	// GeneratedAt is when the judge was asked. A view older than StaleAfter is
	// shown as stale.
	GeneratedAt time.Time `json:"generated_at"`
	// Ready is false until all stored evidence has been judged.
	Ready     bool       `json:"ready"`
	Services  []Row      `json:"services"`
	Refusals  []Refusal  `json:"refusals"`
	Incidents []Incident `json:"incidents"`
}

// Row is one service in one region.
type Row struct {
	Service string `json:"service"`
	Region  string `json:"region"`
	// Verdict is up, degraded, down or unknown. Any other word is shown as it
	// is, and looks unknown.
	Verdict string `json:"verdict"`
	Cause   string `json:"cause,omitempty"`
	// Certainty is certain or suspected.
	Certainty string `json:"certainty,omitempty"`
	// Since is when the verdict began; zero if not known.
	Since time.Time `json:"since,omitzero"`
	// Sentence says it for a person.
	Sentence string `json:"sentence,omitempty"`
	// Incident is the id of the open incident; empty if there is none.
	Incident string `json:"incident,omitempty"`
	Outside  []Line `json:"outside"`
	Inside   []Line `json:"inside"`
}

// Line is one piece of evidence.
type Line struct {
	Check string `json:"check"`
	// Source is the vantage that saw it: place/name.
	Source string `json:"source"`
	// Outcome is pass, warn, fail or blind.
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
	Text    string    `json:"text,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// Refusal is one fault for which a service is not watched.
type Refusal struct {
	Service string `json:"service"`
	File    string `json:"file"`
	Line    int    `json:"line"` // 0: not known
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Incident is an open or recent incident, the newest first.
type Incident struct {
	ID        string    `json:"id"`
	Service   string    `json:"service"`
	Region    string    `json:"region"`
	Verdict   string    `json:"verdict"`
	Severity  string    `json:"severity"`
	Cause     string    `json:"cause,omitempty"`
	Certainty string    `json:"certainty,omitempty"`
	Sentence  string    `json:"sentence,omitempty"`
	OpenedAt  time.Time `json:"opened_at"`
	ClosedAt  time.Time `json:"closed_at,omitzero"` // zero while it is open
}

// StaleAfter is the age beyond which a view is said to be stale. Chosen: two
// refreshes of the page and a second.
const StaleAfter = 5 * time.Second

// stale reports whether v is too old to be believed. A view without a time is.
func (v *View) stale(now time.Time) bool { return now.Sub(v.GeneratedAt) > StaleAfter }

// filled returns v with empty lists in place of nil ones: a reader of the JSON
// need not tell null from [].
func (v View) filled() View {
	v.Services = append([]Row{}, v.Services...)
	for i := range v.Services {
		v.Services[i].Outside = append([]Line{}, v.Services[i].Outside...)
		v.Services[i].Inside = append([]Line{}, v.Services[i].Inside...)
	}
	v.Refusals = append([]Refusal{}, v.Refusals...)
	v.Incidents = append([]Incident{}, v.Incidents...)
	return v
}
