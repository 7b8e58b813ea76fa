//go:build linux

// Command faults runs the fault matrix: real servers, each broken in the ways
// servers break and treated in the ways that only look like it, watched by the
// real observer, checks and judge. What must be said of each cell stands
// beforehand in table.go; a wrong cell fails the run, a slow one does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

// options are the flags.
type options struct {
	servers, faults string
	rounds          int
	parallel        int
	state           string
	list, json      bool
	lookAlikes      bool
	onlyFaults      bool
	verbose         bool
}

func main() {
	if role, ok := roles()[firstArg()]; ok {
		if err := role(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.servers, "servers", "", "comma-separated servers; empty for all")
	flag.StringVar(&o.faults, "faults", "", "comma-separated faults and look-alikes; empty for all")
	flag.BoolVar(&o.onlyFaults, "only-faults", false, "leave the look-alikes out")
	flag.BoolVar(&o.lookAlikes, "only-look-alikes", false, "leave the faults out")
	flag.IntVar(&o.rounds, "rounds", 1, "runs of each cell")
	flag.IntVar(&o.parallel, "parallel", 2*runtime.NumCPU(), "cells at a time; one that burns CPU counts for several")
	flag.StringVar(&o.state, "state", "", "file of results, one a line: cells that are in it are not run again")
	flag.BoolVar(&o.list, "list", false, "print the cells and what is expected, and run nothing")
	flag.BoolVar(&o.json, "json", false, "print each result as a line of JSON instead of the matrix")
	flag.BoolVar(&o.verbose, "v", false, "print each change of verdict of each cell")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

// The roles that this program plays in processes of its own.
const (
	roleInit     = "faults-init"     // the first process of a cell's namespaces
	roleCell     = "faults-cell"     // runs one cell
	roleHog      = "faults-hog"      // burns CPU
	roleImposter = "faults-imposter" // listens where it should not
)

func roles() map[string]func([]string) error {
	return map[string]func([]string) error{roleInit: initMain, roleCell: cellMain, roleHog: hogMain, roleImposter: imposterMain}
}

func firstArg() string {
	if len(os.Args) < 2 {
		return ""
	}
	return os.Args[1]
}

func run(ctx context.Context, o options) error {
	cells, err := selectCells(o)
	if err != nil {
		return err
	}
	if o.list {
		printExpectations(os.Stdout, cells)
		return nil
	}
	store, err := openStore(o.state)
	if err != nil {
		return err
	}
	defer store.close()
	todo := store.missing(cells)
	if n := len(cells) - len(todo); n > 0 {
		fmt.Fprintf(os.Stderr, "%d of %d cells are in %s already\n", n, len(cells), o.state)
	}
	failed := runAll(ctx, o, todo, store)
	results := store.of(cells)
	if !o.json {
		printMatrix(os.Stdout, results)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; run it again with the same -state to go on")
	}
	return errors.Join(failed, conclude(results))
}

// selectCells lists the cells that the flags ask for.
func selectCells(o options) ([]cellID, error) {
	chosenServers, err := chosen("server", o.servers, names(servers.All(), func(s servers.Spec) string { return s.Name }))
	if err != nil {
		return nil, err
	}
	chosenFaults, err := chosen("fault", o.faults, names(allFaults(), func(f fault) string { return f.Name }))
	if err != nil {
		return nil, err
	}
	if o.lookAlikes && o.onlyFaults {
		return nil, errors.New("-only-faults and -only-look-alikes leave nothing")
	}
	var cells []cellID
	for round := 1; round <= max(o.rounds, 1); round++ {
		for _, f := range allFaults() {
			if !chosenFaults[f.Name] || o.lookAlikes && !f.LookAlike || o.onlyFaults && f.LookAlike {
				continue
			}
			for _, s := range servers.All() {
				if chosenServers[s.Name] && expect(s, f.Name).Not == "" {
					cells = append(cells, cellID{s.Name, f.Name, round})
				}
			}
		}
	}
	if len(cells) == 0 {
		return nil, errors.New("no such cell: -list says which exist")
	}
	return cells, nil
}

func names[T any](all []T, name func(T) string) []string {
	var out []string
	for _, x := range all {
		out = append(out, name(x))
	}
	return out
}

// chosen reads a comma-separated list; empty means all.
func chosen(what, list string, all []string) (map[string]bool, error) {
	known, picked := map[string]bool{}, map[string]bool{}
	for _, name := range all {
		known[name] = true
	}
	if list == "" {
		return known, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !known[name] {
			return nil, fmt.Errorf("no %s %q; there are: %s", what, name, strings.Join(all, ", "))
		}
		picked[name] = true
	}
	return picked, nil
}
