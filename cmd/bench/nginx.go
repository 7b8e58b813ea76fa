//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/nginx"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

// watched is the quickstart's configuration with the paths of this run.
const watched = `listen: 127.0.0.1:0
alertmanager: {config_file: alertmanager.yml}
services:
  - name: web
    close_after: 1s
    checks:
      - http: {url: "http://%[1]s/"}
      - port: {address: "%[1]s"}
      - workers: {pid_file: %[2]s}
`

// process is a running crosscheck binary that logs JSON on stderr.
type process struct {
	cmd   *exec.Cmd
	ready time.Duration // from the start to the log line awaited
	// metrics is the address of its metrics, if that line gives it.
	metrics string
	done    chan struct{}
}

// start starts a binary and waits for the log line with the message.
func start(ctx context.Context, message, binary string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(binary, append(args, "--log.format", "json")...), done: make(chan struct{})}
	p.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	seen := make(chan struct{})
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var line struct{ Msg, Metrics string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == message && p.ready == 0 {
				p.ready, p.metrics = time.Since(begun), line.Metrics
				close(seen)
			}
		}
	}()
	select {
	case <-seen:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended before it said %q", binary, message)
	case <-ctx.Done():
		p.stop()
		return nil, ctx.Err()
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	<-p.done
	_ = p.cmd.Wait()
}

// rss is the resident memory in MiB, and cpu the CPU time used so far.
func (p *process) rss() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

func (p *process) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// proc(5): utime and stime are fields 14 and 15, counted from 1; the name in
	// parentheses is field 2. Their unit is 1/100 s on Linux.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	utime, err1 := strconv.Atoi(fields[14-3])
	stime, err2 := strconv.Atoi(fields[15-3])
	return time.Duration(utime+stime) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// rig is an nginx, a pager, and a configuration that watches the one for the
// other.
type rig struct {
	dir    string
	nginx  *nginx.Server
	pager  *pager.Pager
	config string
}

func newRig(ctx context.Context) (*rig, error) {
	dir, err := os.MkdirTemp("", "crosscheck-bench-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, config: filepath.Join(dir, "crosscheck.yml")}
	if r.nginx, err = nginx.Start(ctx, dir, 4); err != nil {
		r.close()
		return nil, err
	}
	if r.pager, err = pager.Start(); err != nil {
		r.close()
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "alertmanager.yml"), r.pager.AlertmanagerConfig(), 0o600),
		os.WriteFile(r.config, fmt.Appendf(nil, watched, r.nginx.Addr(), r.nginx.PIDFile()), 0o600))
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) close() {
	if r.nginx != nil {
		r.nginx.Stop()
	}
	if r.pager != nil {
		r.pager.Stop()
	}
	_ = os.RemoveAll(r.dir) // a temporary directory; nothing depends on it
}

// learn is how long a generation is watched before it is broken: the worker
// count counts after 2 s, and one check interval.
const learn = 5 * time.Second

func benchNginx(ctx context.Context, o options) error {
	r, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	p, err := start(ctx, "serving", filepath.Join(o.bin, "crosscheck"), "serve", "-c", r.config)
	if err != nil {
		return err
	}
	defer p.stop()
	var pages []time.Duration
	for i := range o.nginxRuns {
		if err := pause(ctx, learn); err != nil {
			return err
		}
		took, err := killLoop(ctx, r, i)
		if err != nil {
			return err
		}
		pages = append(pages, took)
	}
	paged, resolved := r.pager.Counts()
	if paged != o.nginxRuns || resolved != o.nginxRuns {
		return fmt.Errorf("%d pages and %d resolves of %d kill loops", paged, resolved, o.nginxRuns)
	}
	fmt.Printf("\nreal nginx, workers killed in a loop: %d runs, %d pages, fault to page %s\n", o.nginxRuns, paged, spread(pages))
	return nil
}

// killLoop kills nginx' workers in a loop until the page number n+1 arrives,
// and returns how long that took; then it waits for the resolve.
func killLoop(ctx context.Context, r *rig, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	killing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	begun := time.Now()
	go func() { ended <- r.nginx.KillLoop(killing) }()
	took := time.Duration(0)
	for {
		calls, more := r.pager.Received()
		pages, resolves := r.pager.Counts()
		if took == 0 && pages > n {
			took = calls[len(calls)-1].At.Sub(begun)
			stop()
			if err := <-ended; err != nil {
				return 0, err
			}
		}
		if took > 0 && resolves > n {
			return took, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, fmt.Errorf("kill loop %d: %d pages, %d resolves: %w", n+1, pages, resolves, ctx.Err())
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
