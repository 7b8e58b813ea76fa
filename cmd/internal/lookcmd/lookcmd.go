// Package lookcmd is "check KIND TARGET" on the command line of both binaries:
// one look, its finding for a person or as JSON, and an exit code by outcome.
package lookcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
)

// result is what is printed: the finding, and what the judge's own rules make
// of it.
type result struct {
	Finding checks.Finding `json:"finding"`
	// Listeners are those of the main process that was asked about.
	Listeners []*checks.ListenerFacts `json:"listeners,omitempty"`
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

// prove applies the judge's rules to what was seen: to the workers first, then to
// each listener.
func prove(r *result) *correlate.Proof {
	replacing := false
	if w := r.Finding.Workers; w != nil {
		if p, ok := correlate.ProveWorkers(w, w.Main.Age > grownUp || w.Chain > 0); ok {
			return &p
		}
		replacing = w.Serving == 0 && !w.MainServes && w.Main.State != checks.ProcGone
	}
	all := r.Listeners
	if r.Finding.Listener != nil {
		all = append(all[:len(all):len(all)], r.Finding.Listener)
	}
	for _, l := range all {
		if p, ok := correlate.ProveListener(l, replacing); ok {
			return &p
		}
	}
	return nil
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
