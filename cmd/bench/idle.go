//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

// benchIdle measures what watching one healthy nginx costs.
func benchIdle(ctx context.Context, o options) error {
	r, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	fmt.Printf("\n%-26s %10s %10s %12s\n", "idle, one nginx watched", "ready (s)", "RSS (MiB)", "CPU (% core)")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, b := range []struct {
		name, binary, message string
		args                  []string
	}{
		{"floor: 20 wakes a second", self, floorReady, []string{floorArg}},
		{"crosscheck serve", "crosscheck", "serving", []string{"serve", "-c", r.config}},
		{"crosscheck-vantage agent", "crosscheck-vantage", "looking", []string{"agent", "-c", r.config, "--listen", "127.0.0.1:0"}},
		{"crosscheck-vantage prober", "crosscheck-vantage", "looking", []string{"prober", "-c", r.config, "--listen", "127.0.0.1:0"}},
	} {
		binary := b.binary
		if !filepath.IsAbs(binary) {
			binary = filepath.Join(o.bin, binary)
		}
		p, err := start(ctx, b.message, binary, b.args...)
		if err != nil {
			return err
		}
		rss, cpu, err := measure(ctx, p, o.idle)
		p.stop()
		if err != nil {
			return err
		}
		fmt.Printf("%-26s %10.2f %10.1f %12.2f\n", b.name, p.ready.Seconds(), rss, 100*cpu)
	}
	return nil
}

// idleFloor is a Go program that does nothing but wake as often as serve must:
// for the agent's dump and for a ticker inside nats-server, ten times a second
// each and out of step. What it costs is the machine's price of a wake.
func idleFloor() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dump := time.NewTicker(host.DumpEvery)
	_ = pause(ctx, host.DumpEvery/2) // ended early: so is the loop
	nats := time.NewTicker(host.DumpEvery)
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info(floorReady)
	for {
		select {
		case <-ctx.Done():
			return
		case <-dump.C:
		case <-nats.C:
		}
	}
}

const (
	floorArg   = "-floor" // makes this binary the floor; the others' flags follow it, unread
	floorReady = "ticking"
)

// measure lets the process settle, and returns its memory in MiB at the end and
// the share of one core it used.
func measure(ctx context.Context, p *process, d time.Duration) (rss, share float64, err error) {
	if err := pause(ctx, learn); err != nil {
		return 0, 0, err
	}
	before, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := pause(ctx, d); err != nil {
		return 0, 0, err
	}
	after, err := p.cpu()
	if err != nil {
		return 0, 0, err
	}
	rss, err = p.rss()
	return rss, float64(after-before) / float64(time.Since(begun)), err
}
