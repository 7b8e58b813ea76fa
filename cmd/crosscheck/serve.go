package main

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/core"
)

func serveCommand() *cobra.Command {
	var path string
	var logging cli.Log
	cmd := &cobra.Command{
		Use: "serve", Short: "Watch what a configuration file names", Args: cli.Args(cobra.NoArgs),
		Long: `Serve starts the core with its embedded message store and Alertmanager, a
prober for each place and, on Linux, an agent. SIGTERM or Ctrl-C stops it cleanly.
A service with a fault in its configuration is refused alone; the others are watched.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, endLog, err := logging.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer endLog()
			file, faults := config.Load(path)
			for _, f := range faults {
				log.Error("configuration", "fault", f.String())
			}
			if file == nil {
				return fmt.Errorf("%s: nothing to serve, see the faults above", path)
			}
			for _, r := range file.Refused {
				log.Error("service refused; the others are watched", "service", r.Service, "faults", len(r.Faults))
			}
			for _, w := range file.Warnings() {
				log.Warn("configuration", "warning", w)
			}
			signal.Ignore(syscall.SIGHUP) // a closed terminal is no reason to stop watching
			begun := time.Now()
			c, err := core.Start(cmd.Context(), file, log)
			if cmd.Context().Err() != nil && err != nil {
				log.Info("stopped while starting")
				return nil
			}
			if err != nil {
				return err
			}
			defer c.Stop()
			log.Info("serving", "console", "http://"+c.Addr().String(), "services", len(file.Services), "refused", len(file.Refused), "took", time.Since(begun))
			select {
			case <-cmd.Context().Done():
				log.Info("stopping")
				return nil
			case err := <-c.Failed():
				return err
			}
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "crosscheck.yml", "configuration file")
	logging.AddFlags(cmd, "info")
	return cmd
}
