package lookcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
	"github.com/crosscheck-project/crosscheck/checks/portcheck"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
)

// targetName is the observer's name for what is asked about.
const targetName = "it"

func portCommand(output *string) *cobra.Command {
	var netNS string
	cmd := &cobra.Command{
		Use: "port (ADDRESS:PORT | unix:PATH)", Short: "Who listens on a port or unix socket of this host", Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(*output); err != nil {
				return err
			}
			l, err := parseListener(args[0])
			if err != nil {
				return cli.Usage{Err: err}
			}
			t, done, err := ways{netNS: netNS, listeners: []local.Listener{l}}.target()
			if err != nil {
				return cli.Usage{Err: err}
			}
			defer done()
			return watchThenShow(cmd, *output, t, 0, patience, func(o *host.Observer, pool *local.Pool) looks {
				return looks{first: portOf(o, pool, l)}
			})
		},
	}
	cmd.Flags().StringVar(&netNS, "netns", "", netNSUsage)
	return cmd
}

const netNSUsage = "network namespace of the listeners, a name below /run/netns or a path, if it is not the main process's own"

func workersCommand(output *string) *cobra.Command {
	var w ways
	var ports []string
	var cfg workercheck.Config
	var status string
	var lookFor time.Duration
	cmd := &cobra.Command{
		Use:   "workers (--pidfile FILE | --port ADDRESS | --unit UNIT | --cgroup PATH | --exe PATH | --cmdline REGEXP)",
		Short: "A server's main process, its listeners and its workers", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(*output); err != nil {
				return err
			}
			asked, err := parseStatus(status)
			if err != nil {
				return err
			}
			for _, p := range ports {
				l, err := parseListener(p)
				if err != nil {
					return cli.Usage{Err: fmt.Errorf("--port: %w", err)}
				}
				w.listeners = append(w.listeners, l)
			}
			t, done, err := w.target()
			if err != nil {
				return cli.Usage{Err: err}
			}
			defer done()
			t = withListeners(cmd.Context(), t)
			limit := patience
			if cfg.Minimum > 0 {
				limit = minimumPatience
			}
			cfg.Target = targetName
			return watchThenShow(cmd, *output, t, lookFor, max(limit, lookFor+time.Second), func(o *host.Observer, pool *local.Pool) looks {
				all := looks{first: workersCheck(o, cfg, workercheck.Deps{Pool: pool, Local: jobs.Local(o, targetName)}, asked)}
				for _, l := range listenersOf(t) {
					all.ports = append(all.ports, portOf(o, pool, l))
				}
				return all
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.pidFile, "pidfile", "", "file that holds the main process's id")
	f.StringArrayVar(&ports, "port", nil, "address the server listens on, ADDRESS:PORT or unix:PATH; may be repeated; finds the main process if nothing else does")
	f.StringVar(&w.unit, "unit", "", "systemd service of the main process, such as nginx.service")
	f.StringVar(&w.cgroup, "cgroup", "", "control group of the main process, a path such as /system.slice/nginx.service")
	f.StringVar(&w.exe, "exe", "", "executable of the main process, an absolute path")
	f.StringVar(&w.cmdline, "cmdline", "", "regular expression for the command line of the main process")
	f.StringVar(&w.netNS, "netns", "", netNSUsage)
	f.IntVar(&cfg.Minimum, "min-workers", 0, "least number of workers that must serve")
	f.BoolVar(&cfg.OnDemand, "on-demand", false, "the pool may be at zero while nothing waits")
	f.StringVar(&status, "status", "", "SERVER=PLACE, where the server tells of itself, such as haproxy_master=/run/haproxy-master.sock")
	f.DurationVar(&lookFor, "for", 1200*time.Millisecond, "how long to look at what seems well; 1.2s tell the CPU use, 35s tell who spins")
	return cmd
}

func portOf(o *host.Observer, pool *local.Pool, l local.Listener) checks.Check {
	return portcheck.New(portcheck.Config{Target: targetName, Listener: l.Addr, Path: l.Path}, o, portcheck.Deps{Pool: pool, Local: jobs.Local(o, targetName)})
}

const (
	// patience is how long a suspicious instance is looked at before what was seen
	// is printed without a proof (chosen: a look has no memory, so that a loop that
	// began before it is known by the floor's 5 s, and a sweep).
	patience = 7 * time.Second
	// minimumPatience is the same where a minimum is declared (JUDGING section 3,
	// P9: 10 s).
	minimumPatience = 12 * time.Second
)

// looks are the checks that look together: the one that was asked for, and those
// of its listeners.
type looks struct {
	first checks.Check
	ports []checks.Check
}

// once looks with all of them.
func (l *looks) once(ctx context.Context) (r result, suspicious bool) {
	r = result{Finding: l.first.Look(ctx)}
	suspicious = r.Finding.Suspicious || r.Finding.Outcome == checks.Fail
	for _, p := range l.ports {
		f := p.Look(ctx)
		suspicious = suspicious || f.Suspicious
		if f.Listener != nil {
			r.Listeners = append(r.Listeners, f.Listener)
		}
	}
	r.Proof = prove(&r)
	return r, suspicious
}

// watchThenShow looks with a host observer of its own: for a while if all is
// well, else until a rule proves the instance broken or the limit is reached.
func watchThenShow(cmd *cobra.Command, output string, target host.Target, while, limit time.Duration, looksOf func(*host.Observer, *local.Pool) looks) error {
	observer, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{})
	if err != nil {
		return cli.Usage{Err: err}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = observer.Run(ctx) // ends with ctx; what it cannot see is in the finding
	}()
	pool := &local.Pool{}
	all := looksOf(observer, pool)
	r := lookUntilKnown(ctx, observer, &all, time.Now().Add(while))
	cancel()
	_ = pool.Close() // always nil
	<-done
	return show(cmd.OutOrStdout(), output, r)
}

func lookUntilKnown(ctx context.Context, observer *host.Observer, all *looks, until time.Time) result {
	tick := time.NewTicker(host.FastEvery)
	defer tick.Stop()
	var r result
	for {
		if s, ok := observer.Snapshot(targetName); ok && s.Sweep > 0 && s.Dump > 0 && ctx.Err() == nil {
			suspicious := false
			r, suspicious = all.once(ctx)
			if r.Proof != nil || !suspicious && (r.Finding.Outcome == checks.Blind || !time.Now().Before(until)) {
				return r
			}
		}
		select {
		case <-tick.C:
		case <-observer.Changed():
		case <-ctx.Done():
			if s, ok := observer.Snapshot(targetName); ok && r.Finding.Workers != nil {
				r.Proof = crashLoop(r.Finding.Workers, s.Events)
			}
			if r.Finding.Detail == "" {
				r.Finding = checks.BlindFinding(checks.ReasonShuttingDown, "ended before the first look")
			}
			return r
		}
	}
}
