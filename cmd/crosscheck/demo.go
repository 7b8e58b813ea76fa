package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/demo"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

func demoCommand() *cobra.Command {
	var o demo.Options
	var logging cli.Log
	cmd := &cobra.Command{
		Use: "demo", Short: "Show a live main process with dead workers go DOWN and page somebody", Args: cli.Args(cobra.NoArgs),
		Long: `Demo starts a small load balancer of its own, three probers, an agent, the core,
Alertmanager and a pager, all on loopback and in one process tree, injects a
fault, and tells what everybody sees. It exits 0 only if the expected verdict
and cause were reached and exactly the expected pages and resolves arrived.

Faults: ` + strings.Join(demo.Faults(), ", "),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, endLog, err := logging.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer endLog()
			if err := demo.CheckOptions(o); err != nil {
				return cli.Usage{Err: err}
			}
			o.Log, o.Out = log, cmd.OutOrStdout()
			o.Color = os.Getenv("NO_COLOR") == "" && terminal(os.Stdout)
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Fault, "fault", demo.Faults()[0], "the fault to inject")
	cmd.Flags().StringVar(&o.Listener, "listener", lab.Shared, fmt.Sprintf("how the lab's workers listen: %s (one socket, inherited) or %s (each its own, as Sōzu's)", lab.Shared, lab.Reuseport))
	cmd.Flags().BoolVar(&o.Once, "once", false, "run one fault cycle and exit")
	cmd.Flags().StringVar(&o.JSON, "json", "", "write a report to this file")
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:0", "address of the console; port 0 takes a free one")
	logging.AddFlags(cmd, "error")
	return cmd
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
