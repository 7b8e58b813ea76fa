// Command crosscheck is the core: it judges, records, pages and shows. On one
// machine it also looks, from outside and from inside.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lookcmd"
)

func main() { os.Exit(cli.Main(root(), os.Args[1:], os.Stderr)) }

func root() *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "crosscheck",
		Short: "Looks at services from outside and inside, and says in one verdict what is wrong",
		Long: `Crosscheck looks at a service from outside (synthetic probes from many places)
and from inside (the host's ports and worker processes), merges both into one
verdict with a named cause, and pages on-call in about a second when a live
main process has dead workers.`,
	})
	cmd.AddCommand(serveCommand(), demoCommand(), lookcmd.Command(), configCommand(), cli.VersionCommand())
	return cmd
}
