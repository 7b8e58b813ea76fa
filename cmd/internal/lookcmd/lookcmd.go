// Package lookcmd is "check KIND TARGET" on the command line of both binaries:
// one look, its finding for a person or as JSON, and an exit code by outcome.
package lookcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
	"github.com/crosscheck-project/crosscheck/checks/portcheck"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
)

// result is what is printed: the finding, and what the judge's own rules make
// of it.
type result struct {
	Finding checks.Finding `json:"finding"`
	// Proof is set if the finding alone proves the instance broken.
	Proof *correlate.Proof `json:"proof,omitempty"`
}

// Command returns the command.
func Command() *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use: "check", Short: "Look once and print what was seen",
		Long: `Check looks once and prints the finding.
Exit code: 0 pass, 1 fail, 2 usage, 3 blind (we could not look), 4 warn.`,
	})
	var output string
	cmd.PersistentFlags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.AddCommand(httpCommand(&output), portCommand(&output), workersCommand(&output))
	return cmd
}

func httpCommand(output *string) *cobra.Command {
	var cfg httpcheck.Config
	cmd := &cobra.Command{
		Use: "http URL", Short: "One HTTP exchange, each phase timed", Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Timeout <= 0 {
				return cli.Usage{Err: fmt.Errorf("--timeout: %s is not a time to look for", cfg.Timeout)}
			}
			cfg.URL = args[0]
			check, err := httpcheck.New(cfg)
			if err != nil {
				return cli.Usage{Err: err}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cfg.Timeout)
			defer cancel()
			return show(cmd.OutOrStdout(), *output, result{Finding: check.Look(ctx)})
		},
	}
	cmd.Flags().DurationVar(&cfg.Timeout, "timeout", 5*time.Second, "limit of the whole look")
	cmd.Flags().StringVar(&cfg.Method, "method", "GET", "request method")
	cmd.Flags().StringVar(&cfg.Host, "host", "", "host header, if it is not the URL's host")
	cmd.Flags().StringVar(&cfg.BodyContains, "body-contains", "", "text the body must contain")
	return cmd
}

func portCommand(output *string) *cobra.Command {
	return &cobra.Command{
		Use: "port ADDRESS:PORT", Short: "Who listens on a port of this host", Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := netip.ParseAddrPort(args[0])
			if err != nil {
				return cli.Usage{Err: fmt.Errorf("%q is not an address and port such as 127.0.0.1:8080 or [::1]:443", args[0])}
			}
			return inside(cmd, *output, host.Target{Name: "port", Port: addr}, func(o *host.Observer) checks.Check {
				return portcheck.New(portcheck.Config{Target: "port", Listener: addr}, o)
			})
		},
	}
}

func workersCommand(output *string) *cobra.Command {
	var pidFile, port string
	cmd := &cobra.Command{
		Use: "workers (--pidfile FILE | --port ADDRESS:PORT)", Short: "A server's main process and its workers", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			target := host.Target{Name: "workers", PIDFile: pidFile}
			if (pidFile == "") == (port == "") {
				return cli.Usage{Err: fmt.Errorf("give one of --pidfile and --port")}
			}
			if port != "" {
				addr, err := netip.ParseAddrPort(port)
				if err != nil {
					return cli.Usage{Err: fmt.Errorf("--port: %q is not an address and port such as 127.0.0.1:8080", port)}
				}
				target.Port = addr
			} else if found, err := host.ListenersOf(pidFile); err == nil {
				target.Listeners = found // so that it can be tried; a bad pid file is told by the look
			}
			return inside(cmd, *output, target, func(o *host.Observer) checks.Check {
				return workercheck.New(workercheck.Config{Target: "workers"}, o)
			})
		},
	}
	cmd.Flags().StringVar(&pidFile, "pidfile", "", "file that holds the main process's id")
	cmd.Flags().StringVar(&port, "port", "", "address the server listens on")
	return cmd
}

// patience is how long a suspicious instance is looked at before what was seen
// is printed without a proof (chosen: a look has no memory, so that a loop that
// began before it is known by the floor's 5 s, and a sweep).
const patience = 7 * time.Second

// inside looks with a host observer of its own: once if all is well, else until
// a rule proves the instance broken or patience ends.
func inside(cmd *cobra.Command, output string, target host.Target, makeCheck func(*host.Observer) checks.Check) error {
	if err := checkOutput(output); err != nil {
		return err
	}
	observer, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{})
	if err != nil {
		return cli.Usage{Err: err}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = observer.Run(ctx) // ends with ctx; what it cannot see is in the finding
	}()
	r := lookUntilKnown(ctx, observer, makeCheck(observer), target.Name)
	cancel()
	<-done
	return show(cmd.OutOrStdout(), output, r)
}

func lookUntilKnown(ctx context.Context, observer *host.Observer, check checks.Check, target string) result {
	tick := time.NewTicker(host.FastEvery)
	defer tick.Stop()
	var r result
	for {
		if s, ok := observer.Snapshot(target); ok && s.Sweep > 0 && s.Dump > 0 && ctx.Err() == nil {
			r = result{Finding: check.Look(ctx)}
			r.Proof = prove(&r.Finding)
			if r.Proof != nil || !r.Finding.Suspicious && r.Finding.Outcome != checks.Fail {
				return r
			}
		}
		select {
		case <-tick.C:
		case <-observer.Changed():
		case <-ctx.Done():
			if s, ok := observer.Snapshot(target); ok && r.Finding.Workers != nil {
				r.Proof = crashLoop(r.Finding.Workers, s.Events)
			}
			if r.Finding.Detail == "" {
				r.Finding = checks.BlindFinding(checks.ReasonShuttingDown, "ended before the first look")
			}
			return r
		}
	}
}

// crashLoop names a loop that went on for the whole of our patience. The judge's
// rules want to know that an instance was well before, and who held its listener;
// a person who asks during an outage has neither, and has seen nobody serve and
// one child after the other end badly.
func crashLoop(w *checks.WorkerFacts, events []host.Event) *correlate.Proof {
	ends, died := map[string]int{}, 0
	var first, last time.Duration
	for _, e := range events {
		if e.Kind != host.Death || !e.Exit.Abnormal() {
			continue
		}
		if died == 0 {
			first = e.At
		}
		died, last = died+1, e.At
		ends[e.Exit.String()]++
	}
	if w.Serving > 0 || w.MainServes || died < manyDeaths || last-first < time.Second {
		return nil
	}
	return &correlate.Proof{Rule: "look", Cause: correlate.CauseWorkersCrashLooping, Ago: w.NoneFor,
		Text: fmt.Sprintf("main %s, nobody served for %s, and %d of its children ended badly meanwhile: %v", w.Main.State, w.NoneFor.Round(100*time.Millisecond), died, ends)}
}

// manyDeaths is how many ends make a loop for a single look (chosen: more than a
// master ends by mistake; over at least a second, for the observer keeps no more
// than its last events).
const manyDeaths = 10

// grownUp is the age of a main process that counts as having served before we
// looked: a single look has no memory (chosen: most servers start within 10 s).
// One whose replacements fail under our eyes is judged by that at any age.
const grownUp = 10 * time.Second

// prove applies the judge's rules to one finding.
func prove(f *checks.Finding) *correlate.Proof {
	var p correlate.Proof
	var ok bool
	switch {
	case f.Workers != nil:
		p, ok = correlate.ProveWorkers(f.Workers, f.Workers.Main.Age > grownUp || f.Workers.Chain > 0)
	case f.Listener != nil:
		p, ok = correlate.ProveListener(f.Listener, false)
	}
	if !ok {
		return nil
	}
	return &p
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return cli.Usage{Err: fmt.Errorf("--output: %q is neither text nor json", output)}
	}
	return nil
}

func show(w io.Writer, output string, r result) error {
	if err := checkOutput(output); err != nil {
		return err
	}
	if r.Proof != nil { // proven broken is no mere warning
		r.Finding.Outcome = checks.Fail
	}
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			return err
		}
	} else if err := printText(w, r); err != nil {
		return err
	}
	switch r.Finding.Outcome {
	case checks.Pass:
		return nil
	case checks.Warn:
		return cli.ExitError(cli.ExitWarn)
	case checks.Fail:
		return cli.ExitError(cli.ExitFail)
	default:
		return cli.ExitError(cli.ExitBlind)
	}
}
