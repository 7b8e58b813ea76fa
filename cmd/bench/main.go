//go:build linux

// Command bench measures what the READMEs promise: fault to page on the lab and
// on a real nginx, look-alikes that must not page, and what idling costs. It
// runs the shipped binaries as processes and asserts no time; a wrong verdict
// or page count fails it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/demo"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

type options struct {
	bin         string
	once        bool
	runs, quiet int
	nginxRuns   int
	idle        time.Duration
	only        string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == floorArg {
		idleFloor()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == observeArg {
		if err := observeAlone(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of the built binaries")
	flag.BoolVar(&o.once, "once", false, "each fault once in both listener modes, and nothing else")
	flag.IntVar(&o.runs, "runs", 10, "runs of each fault")
	flag.IntVar(&o.quiet, "quiet-runs", 20, "runs of each look-alike")
	flag.IntVar(&o.nginxRuns, "nginx-runs", 10, "kill loops on a real nginx")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long idling is measured")
	flag.StringVar(&o.only, "only", "", "lab, nginx, idle or agent; empty for all")
	flag.Parse()
	if o.once {
		o.runs, o.quiet, o.only = 1, 1, "lab"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	for _, part := range []struct {
		name string
		run  func(context.Context, options) error
	}{{"lab", benchLab}, {"nginx", benchNginx}, {"idle", benchIdle}, {"agent", benchAgent}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// report is what bench reads of a demo's report.
type report struct {
	InjectedAt time.Time  `json:"injected_at"`
	VerdictAt  *time.Time `json:"verdict_at"`
	PagedAt    *time.Time `json:"paged_at"`
	TicketedAt *time.Time `json:"ticketed_at"`
	HealedAt   *time.Time `json:"healed_at"`
	ResolvedAt *time.Time `json:"resolved_at"`
	Pages      int        `json:"pages"`
	Tickets    int        `json:"tickets"`
}

func benchLab(ctx context.Context, o options) error {
	fmt.Printf(labRow, "fault", "listener", "runs", "pages", "tickets", "fault to verdict (s)", "fault to page or ticket (s)")
	dir, err := os.MkdirTemp("", "crosscheck-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, fault := range demo.Faults() {
		for _, listener := range []string{lab.Shared, lab.Reuseport} {
			if err := benchFault(ctx, o, dir, fault, listener); err != nil {
				return err
			}
		}
	}
	return nil
}

const labRow = "%-16s %-10s %5v %7v %7v  %-22s %-22s\n"

func benchFault(ctx context.Context, o options, dir, fault, listener string) error {
	var verdicts, told []time.Duration
	paged, ticketed, runs := 0, 0, o.runs
	for i := 0; i < runs; i++ {
		path := filepath.Join(dir, "report.json")
		cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "crosscheck"), "demo", "--once", "--fault", fault, "--listener", listener, "--json", path)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its lab
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %d of %s, %s listener: %w\n%s", i+1, fault, listener, err, out)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		paged += r.Pages
		ticketed += r.Tickets
		at := r.PagedAt
		switch {
		case at != nil:
		case r.TicketedAt != nil:
			at, runs = r.TicketedAt, (o.runs+1)/2 // waits on purpose, and so varies little
		default:
			runs = o.quiet // a look-alike: repeated more often, measured by its silence
			continue
		}
		verdicts = append(verdicts, r.VerdictAt.Sub(r.InjectedAt))
		told = append(told, at.Sub(r.InjectedAt))
	}
	fmt.Printf(labRow, fault, listener, runs, paged, ticketed, spread(verdicts), spread(told))
	return nil
}

// spread is "median M, worst W" in seconds.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("median %.2f worst %.2f", median(all).Seconds(), slices.Max(all).Seconds())
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
