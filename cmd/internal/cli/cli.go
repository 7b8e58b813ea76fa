// Package cli is what both binaries' command lines share: exit codes, logging,
// the version, and the end by signal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes. A look that was made exits by its outcome.
const (
	ExitOK    = 0
	ExitFail  = 1 // fail, or an error
	ExitUsage = 2
	ExitBlind = 3
	ExitWarn  = 4
)

// ExitError ends the program with a code, its message told already.
type ExitError int

// Error implements error.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Usage marks an error as one of usage.
type Usage struct{ Err error }

// Error implements error.
func (u Usage) Error() string { return u.Err.Error() }

// Unwrap returns the error that was marked.
func (u Usage) Unwrap() error { return u.Err }

// Main runs a command line and returns its exit code. The first SIGINT or
// SIGTERM ends the context; a second one ends the process.
func Main(root *cobra.Command, args []string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal has its default effect
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage{err} })
	cmd, err := root.ExecuteContextC(ctx)
	var exit ExitError
	var usage Usage
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nTry '%s --help'.\n", cmd.CommandPath(), err, cmd.CommandPath())
		return ExitUsage
	default:
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
		return ExitFail
	}
}

// Args marks the errors of a cobra argument rule as errors of usage.
func Args(rule cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := rule(cmd, args); err != nil {
			return Usage{err}
		}
		return nil
	}
}

// Group is a command that only has subcommands: without one it shows its help,
// with an unknown one it fails.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage{fmt.Errorf("unknown command %q", args[0])}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// Log holds the logging flags.
type Log struct{ level, format string }

// AddFlags adds --log.level and --log.format.
func (l *Log) AddFlags(cmd *cobra.Command, level string) {
	cmd.Flags().StringVar(&l.level, "log.level", level, "debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log.format", "text", "text or json")
}

// lastLines is how long the end of a program waits for its log (chosen: it has
// 5 s in all).
const lastLines = 500 * time.Millisecond

// Logger returns the logger the flags ask for, on w, which it never waits for,
// and what ends it once nothing logs any more.
func (l *Log) Logger(w io.Writer) (log *slog.Logger, end func(), err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, nil, Usage{fmt.Errorf("--log.level: %w", err)}
	}
	o := &slog.HandlerOptions{Level: level}
	if l.format != "text" && l.format != "json" {
		return nil, nil, Usage{fmt.Errorf("--log.format: %q is neither text nor json", l.format)}
	}
	lines := newLogWriter(w)
	end = func() { lines.close(lastLines) }
	if l.format == "text" {
		return slog.New(slog.NewTextHandler(lines, o)), end, nil
	}
	return slog.New(slog.NewJSONHandler(lines, o)), end, nil
}

// Version returns the version the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			version += " " + s.Value[:12]
		}
	}
	return version
}

// VersionCommand prints the version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Name(), Version())
			return err
		},
	}
}
