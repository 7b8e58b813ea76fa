//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runAll runs cells, several at a time, and stores each result as it comes. It
// returns what kept it from storing; what is wrong with a cell is in its result.
func runAll(ctx context.Context, o options, todo []cellID, store *store) error {
	base, err := os.MkdirTemp("", "crosscheck-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil { // workers run as other users
		return err
	}
	capacity := max(o.parallel, 1)
	free, done := capacity, make(chan finished)
	var failed error
	for running := 0; ; {
		for ctx.Err() == nil && failed == nil {
			i := slices.IndexFunc(todo, func(id cellID) bool { return weight(id, capacity) <= free })
			if i < 0 {
				break
			}
			id := todo[i]
			todo = slices.Delete(slices.Clone(todo), i, i+1)
			free -= weight(id, capacity)
			running++
			go func() { done <- runOne(ctx, base, id) }()
		}
		if running == 0 {
			return failed
		}
		f := <-done
		running--
		free += weight(f.id, capacity)
		if ctx.Err() != nil {
			continue // cut short: it will be run again
		}
		if err := store.add(f.result); err != nil {
			failed = errors.Join(failed, err)
		}
		report(o, f.result)
	}
}

// finished is a cell that came to its end.
type finished struct {
	id     cellID
	result result
}

func runOne(ctx context.Context, base string, id cellID) finished {
	name := fmt.Sprintf("%s-%s-%d", id.Server, id.Fault, id.Round)
	j := job{Cell: id, Dir: filepath.Join(base, name), Group: fmt.Sprintf("crosscheck-faults-%d-%s", os.Getpid(), name)}
	r, err := result{}, os.Mkdir(j.Dir, 0o755)
	if err == nil {
		limited, cancel := context.WithTimeoutCause(ctx, cellLimit, fmt.Errorf("the cell did not end within %s", cellLimit))
		r, err = runJob(limited, j)
		cancel()
	}
	r.Cell = id
	err = errors.Join(err, os.RemoveAll(j.Dir), removeGroups(j.Group))
	if err != nil {
		r.OK, r.Error = false, strings.TrimPrefix(r.Error+"; "+err.Error(), "; ")
	}
	return finished{id, r}
}

// weight is how much of the capacity a cell takes.
func weight(id cellID, capacity int) int {
	f, err := faultNamed(id.Fault)
	if err != nil {
		return 1
	}
	return min(max(f.Weight, 1), capacity)
}

// report prints one result as it comes.
func report(o options, r result) {
	if o.json {
		raw, err := json.Marshal(r)
		if err == nil {
			fmt.Println(string(raw))
		}
		return
	}
	fmt.Fprintf(os.Stderr, "%-15s %-12s %s\n", r.Cell.Server, r.Cell.Fault, r.line())
	if o.verbose || !r.OK && r.Missing == "" {
		for _, t := range r.Trail {
			fmt.Fprintln(os.Stderr, "    ", t)
		}
	}
	if r.OK || r.Missing != "" {
		return
	}
	if len(r.Facts) > 0 {
		fmt.Fprintf(os.Stderr, "     facts: %s\n", r.Facts)
	}
	if r.Output != "" {
		fmt.Fprintf(os.Stderr, "     server: %s\n", strings.ReplaceAll(r.Output, "\n", "\n             "))
	}
}

// line is a result in one line.
func (r result) line() string {
	switch {
	case r.Missing != "":
		return "MISSING " + r.Missing
	case r.Error != "":
		return "ERROR " + r.Error
	case !r.OK:
		return "WRONG " + strings.Join(r.Problems, "; ")
	case r.Cause == "":
		return fmt.Sprintf("ok    %s, %s", r.Verdict, r.Lifecycle)
	}
	return fmt.Sprintf("ok    %.2fs %s %s by %s, %s", float64(r.KnownMS)/1000, r.Verdict, r.Cause, r.Rule, r.Severity)
}
