//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

// benchAgent measures what watching a crowded host costs.
func benchAgent(ctx context.Context, o options) error {
	c, err := newCrowd(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Printf("\n%-26s %10s %12s %20s\n", fmt.Sprintf("%d services of %d processes", crowdServices, 1+crowdWorkers), "RSS (MiB)", "CPU (% core)", "CPU per sweep (ms)")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	alone, err := start(ctx, floorReady, self, observeArg, c.config)
	if err != nil {
		return err
	}
	err = crowdRow(ctx, o, "the observer alone", alone)
	alone.stop()
	if err != nil {
		return err
	}
	p, err := start(ctx, "looking", filepath.Join(o.bin, "crosscheck-vantage"), "agent", "-c", c.config, "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer p.stop()
	if err := crowdRow(ctx, o, "crosscheck-vantage agent", p); err != nil {
		return err
	}
	seen, err := passing(ctx, p.metrics)
	if err != nil {
		return err
	}
	if seen != 2*crowdServices {
		return fmt.Errorf("%d of %d checks pass: the host is not what it should be", seen, 2*crowdServices)
	}
	return burst(ctx, c, p)
}

// crowdRow measures one process that sweeps the crowd once a second.
func crowdRow(ctx context.Context, o options, name string, p *process) error {
	// Every process must be older than what a young one is looked at more for.
	if err := pause(ctx, 2*learn); err != nil {
		return err
	}
	rss, share, err := measure(ctx, p, o.idle)
	if err != nil {
		return err
	}
	fmt.Printf("%-26s %10.1f %12.2f %20.2f\n", name, rss, 100*share, 1000*share*host.SweepEvery.Seconds())
	return nil
}

// observeArg makes this binary an observer of the targets of the configuration
// that follows, and nothing else; flags after it are not read.
const observeArg = "-observe"

func observeAlone(path string) error {
	file, faults := config.Load(path)
	if file == nil {
		return fmt.Errorf("%s: %v", path, faults)
	}
	observer, err := host.New(host.Config{Targets: config.Compile(file).Targets}, host.Deps{})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(floorReady)
	return observer.Run(ctx)
}

// burst has one main fork as fast as it can, and prints what that does to the
// agent, which must have all checks pass again afterwards.
func burst(ctx context.Context, c *crowd, p *process) error {
	before, err := p.cpu()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := c.mains[0].Process.Signal(unix.SIGUSR1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if _, err := os.Stat(c.pidFile(0) + ".burst"); err == nil {
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("the burst does not end: %w", err)
		}
	}
	took := time.Since(begun)
	if err := pause(ctx, 2*learn); err != nil { // every check looks at least once more
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	rss, err := p.rss()
	if err != nil {
		return err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	seen, err := passing(ctx, p.metrics)
	if err != nil {
		return err
	}
	fmt.Printf("%d forks of one main in %.1f s: agent %.2f s CPU until %s later, RSS %.1f MiB, %d descriptors, %d of %d checks pass\n",
		crowdBurst, took.Seconds(), (after - before).Seconds(), 2*learn, rss, len(open), seen, 2*crowdServices)
	if seen != 2*crowdServices {
		return errors.New("not all checks pass after the burst")
	}
	return nil
}

// passing reads from /metrics how many checks pass.
func passing(ctx context.Context, url string) (n int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "crosscheck_check_outcome{") && strings.Contains(name, `outcome="pass"`) && value == "1" {
			n++
		}
	}
	return n, lines.Err()
}
