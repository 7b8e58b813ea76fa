//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

// printMatrix prints a table in Markdown: a row for each fault, a column for each
// server, in each cell the median time to the cause, and what is wrong.
func printMatrix(out io.Writer, results []result) {
	cells := map[cellID][]result{}
	var columns []string
	for _, r := range results {
		at := cellID{Server: r.Cell.Server, Fault: r.Cell.Fault}
		cells[at] = append(cells[at], r)
	}
	for _, s := range servers.All() {
		if slices.ContainsFunc(results, func(r result) bool { return r.Cell.Server == s.Name }) {
			columns = append(columns, s.Name)
		}
	}
	if len(columns) == 0 {
		return
	}
	fmt.Fprintf(out, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, f := range allFaults() {
		if !slices.ContainsFunc(results, func(r result) bool { return r.Cell.Fault == f.Name }) {
			continue
		}
		var row []string
		for _, server := range columns {
			row = append(row, square(cells[cellID{Server: server, Fault: f.Name}], expected(server, f.Name)))
		}
		fmt.Fprintf(out, "| %s | %s |\n", strings.TrimSpace(f.Sign+" "+f.Name), strings.Join(row, " | "))
	}
}

// expected is what must be said of a cell, by the server's name.
func expected(server, fault string) want {
	for _, s := range servers.All() {
		if s.Name == server {
			return expect(s, fault)
		}
	}
	return want{Not: "no such server"}
}

// square is one cell of the matrix: what came of its rounds.
func square(rounds []result, w want) string {
	switch {
	case len(rounds) == 0 && w.Not != "":
		return "-"
	case len(rounds) == 0:
		return "?"
	}
	var times []int64
	wrong, text := 0, ""
	for _, r := range rounds {
		switch {
		case r.Missing != "":
			return "missing"
		case r.Error != "":
			wrong++
			text = "error"
		case !r.OK:
			wrong++
			text = fmt.Sprintf("%s %s", r.Verdict, r.Cause)
		case r.KnownMS >= 0:
			times = append(times, r.KnownMS)
		}
	}
	switch {
	case wrong > 0:
		return fmt.Sprintf("**wrong %d/%d: %s**", wrong, len(rounds), strings.TrimSpace(text))
	case len(times) > 0:
		slices.Sort(times)
		median := times[(len(times)-1)/2]
		text = fmt.Sprintf("%.2f s", float64(median)/1000)
		if w.Target > 0 && median > w.Target.Milliseconds() {
			text += fmt.Sprintf(" (>%s)", w.Target)
		}
		return text
	}
	return "well"
}

// conclude is the error of a run: cells that are wrong, could not be run or are
// not there. A server that is not installed fails only where nothing may be left
// out (CROSSCHECK_NO_SKIP).
func conclude(results []result) error {
	wrong, missing := 0, 0
	for _, r := range results {
		switch {
		case r.Missing != "":
			missing++
		case !r.OK:
			wrong++
		}
	}
	var errs []error
	if wrong > 0 {
		errs = append(errs, fmt.Errorf("%d of %d cells are wrong", wrong, len(results)))
	}
	if missing > 0 && os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		errs = append(errs, fmt.Errorf("%d cells have no server", missing))
	}
	return errors.Join(errs...)
}

// printExpectations prints what is expected of each cell.
func printExpectations(out io.Writer, cells []cellID) {
	for _, id := range cells {
		if id.Round > 1 {
			continue
		}
		w := expected(id.Server, id.Fault)
		line := fmt.Sprintf("%-15s %-12s %s", id.Server, id.Fault, w.Verdict)
		if !w.quiet() {
			line += fmt.Sprintf(" %s, %s, within %s", causes(w.Causes), w.Severity, w.Target)
		}
		if w.Why != "" {
			line += ": " + w.Why
		}
		fmt.Fprintln(out, line)
	}
}
