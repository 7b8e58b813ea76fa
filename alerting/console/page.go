package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// page is a View as the template prints it: words, shapes and ages decided.
type page struct {
	Title     string
	Summary   string
	StyleURL  string
	Still     bool // does not reload itself
	Ready     bool
	Stale     string // the age of stale data; empty if fresh
	Generated moment
	Services  []row
	Refusals  []Refusal
	Incidents []incident
}

type row struct {
	Row
	Mark    mark
	Since   moment
	Outside []line
	Inside  []line
}

type line struct {
	Line
	Mark mark
	At   moment
}

type incident struct {
	Incident
	Mark           mark
	Opened, Closed moment
	Open           bool
}

// mark is a state in three ways that do not depend on each other: the word is
// printed beside it, Shape differs without colour, Class adds the colour.
type mark struct{ Class, Shape string }

var (
	markGood    = mark{"good", "●"}
	markWarn    = mark{"warn", "▲"}
	markBad     = mark{"bad", "■"}
	markUnknown = mark{"unknown", "?"}
)

// marks of verdicts and outcomes. What is not here looks unknown, never good.
var marks = map[string]mark{
	"up": markGood, "degraded": markWarn, "down": markBad,
	"pass": markGood, "warn": markWarn, "fail": markBad,
}

func markOf(word string) mark {
	if m, ok := marks[word]; ok {
		return m
	}
	return markUnknown
}

// moment is a time, for machines and for people. The zero moment is not
// printed.
type moment struct{ Machine, Text, Ago string }

func momentOf(t, now time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t = t.UTC()
	text := t.Format("15:04:05 UTC")
	if now.Sub(t) >= 24*time.Hour {
		text = t.Format("2 January 2006 15:04 UTC")
	}
	return moment{Machine: t.Format(time.RFC3339), Text: text, Ago: age(now.Sub(t)) + " ago"}
}

// age prints a duration in its largest unit. What lies in the future by a
// difference of clocks is 0 s old.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// newPage decides how v is shown at now.
func newPage(v View, now time.Time) page {
	p := page{Ready: v.Ready, Generated: momentOf(v.GeneratedAt, now), Refusals: v.Refusals}
	switch {
	case v.GeneratedAt.IsZero():
		p.Stale = "of unknown age"
	case v.stale(now):
		p.Stale = age(now.Sub(v.GeneratedAt)) + " old"
	}
	for _, s := range v.Services {
		p.Services = append(p.Services, row{
			Row: s, Mark: markOf(s.Verdict), Since: momentOf(s.Since, now),
			Outside: lines(s.Outside, now), Inside: lines(s.Inside, now),
		})
	}
	slices.SortStableFunc(p.Services, func(a, b row) int {
		return cmp.Or(cmp.Compare(rank(a.Mark), rank(b.Mark)), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Region, b.Region))
	})
	for _, i := range v.Incidents {
		p.Incidents = append(p.Incidents, incident{
			Incident: i, Mark: markOf(i.Verdict), Opened: momentOf(i.OpenedAt, now), Closed: momentOf(i.ClosedAt, now), Open: i.ClosedAt.IsZero(),
		})
	}
	p.Summary = summary(p.Services, v.Refusals)
	p.Title = p.Summary + " - Crosscheck"
	if p.Stale != "" {
		p.Title = "stale: " + p.Title
	}
	return p
}

func lines(evidence []Line, now time.Time) []line {
	var all []line
	for _, l := range evidence {
		all = append(all, line{Line: l, Mark: markOf(l.Outcome), At: momentOf(l.At, now)})
	}
	return all
}

// rank puts the worst first. Unknown comes before good: nobody knows that it is
// not down.
func rank(m mark) int {
	return slices.Index([]mark{markBad, markWarn, markUnknown, markGood}, m)
}

// summary says how many services are in which state, the worst first, and how
// many are not watched at all.
func summary(rows []row, refusals []Refusal) string {
	words := map[mark]string{markBad: "down", markWarn: "degraded", markUnknown: "unknown", markGood: "up"}
	var parts []string
	for _, m := range []mark{markBad, markWarn, markUnknown, markGood} {
		n := 0
		for _, r := range rows {
			if r.Mark == m {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[m]))
		}
	}
	refused := map[string]bool{}
	for _, r := range refusals {
		refused[r.Service] = true
	}
	if len(refused) > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", len(refused)))
	}
	if len(rows) == 0 && len(refused) == 0 {
		return "nothing watched"
	}
	return strings.Join(parts, ", ")
}
