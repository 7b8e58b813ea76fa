package lookcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/cli"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
)

// parseStatus reads SERVER=PLACE; empty asks nobody.
func parseStatus(s string) (config.Status, error) {
	if s == "" {
		return config.Status{}, nil
	}
	server, place, ok := strings.Cut(s, "=")
	if !ok {
		return config.Status{}, cli.Usage{Err: fmt.Errorf("--status: want SERVER=PLACE, SERVER being one of %s", strings.Join(serverstatus.Servers(), ", "))}
	}
	if _, err := serverstatus.New(server, place); err != nil {
		return config.Status{}, cli.Usage{Err: fmt.Errorf("--status: %w", err)}
	}
	return config.Status{Server: server, Place: place}, nil
}

// workersCheck is a check of the target whose server is asked too.
func workersCheck(o *host.Observer, cfg workercheck.Config, deps workercheck.Deps, s config.Status) checks.Check {
	deps.Status = jobs.Status(s)
	check := workercheck.New(cfg, o, deps)
	if s.Server == "" {
		return check
	}
	return asked{check}
}

// asked is a check that is asked once and must show what the server says: its
// looks wait for the first answer, which comes within serverstatus.Timeout.
type asked struct{ *workercheck.Check }

// Look implements checks.Check.
func (a asked) Look(ctx context.Context) checks.Finding {
	tick := time.NewTicker(host.FastEvery)
	defer tick.Stop()
	for {
		f := a.Check.Look(ctx)
		if f.Workers == nil || f.Workers.Source != "" {
			return f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f
		}
	}
}
