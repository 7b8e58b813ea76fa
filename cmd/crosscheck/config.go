package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

func configCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{Use: "config", Short: "Look at configuration files"})
	cmd.AddCommand(&cobra.Command{
		Use: "check FILE", Short: "Report every fault with file, line and path; exit 1 if there is one",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, faults := config.Load(args[0])
			if file != nil && file.Alertmanager.ConfigFile != "" {
				if err := embedded.Check(file.Alertmanager.ConfigFile); err != nil {
					faults = append(faults, config.Fault{File: args[0], Path: "alertmanager.config_file", Message: err.Error()})
				}
			}
			for _, f := range faults {
				fmt.Fprintln(cmd.OutOrStdout(), f)
			}
			if file != nil {
				for _, w := range file.Warnings() {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s\n", args[0], w)
				}
			}
			if len(faults) > 0 {
				return cli.ExitError(cli.ExitFail)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: no fault; services: %d\n", args[0], len(file.Services))
			return nil
		},
	})
	return cmd
}
