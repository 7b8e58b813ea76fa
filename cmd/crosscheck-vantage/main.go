// Command crosscheck-vantage is the light binary for hosts and places: it
// looks, from outside or inside, and judges nothing.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lookcmd"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

func main() { os.Exit(cli.Main(root(), os.Args[1:], os.Stderr)) }

func root() *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "crosscheck-vantage",
		Short: "Looks at services from outside or inside; judges nothing",
	})
	cmd.AddCommand(
		runCommand(evidence.Agent, "Look at this host's listeners and workers"),
		runCommand(evidence.Prober, "Look at services from outside"),
		lookcmd.Command(), cli.VersionCommand())
	return cmd
}
