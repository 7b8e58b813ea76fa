//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A crowded host: 100 services of 9 processes, 1,200 processes and 10,000
// sockets.
const (
	crowdServices  = 100
	crowdWorkers   = 8
	crowdOthers    = 1200 - crowdServices*(1+crowdWorkers)
	crowdSockets   = 10000
	crowdBurst     = 10000 // forks of one main
	crowdRestingOf = 2     // every second service rests; the others' processes wake each second
)

// crowdMain is one service: a main that binds nothing itself and workers that
// share the listener on descriptor 3, accept, and close. Perl is in every Debian,
// and its processes are as small as a server's. The wake is what gunicorn's,
// php-fpm's or apache's processes do when they idle; nginx' do not.
const crowdMain = `
use strict; my ($n, $tick, $file, $burst) = @ARGV; my @kids;
$SIG{TERM} = sub { kill 'KILL', @kids; exit };
open(my $l, '+<&=', 3) or die;
for (1..$n) {
	my $pid = fork; die unless defined $pid;
	if ($pid) { push @kids, $pid; next }
	$SIG{TERM} = 'DEFAULT'; my $set = ''; vec($set, 3, 1) = 1;
	while (1) { select(my $r = $set, undef, undef, $tick || undef); next unless vec($r, 3, 1); if (accept(my $c, $l)) { close $c } }
}
$SIG{USR1} = sub {
	for (1..$burst / 100) {
		my @short = map { my $pid = fork; exit if defined $pid && !$pid; $pid } 1..100;
		waitpid($_, 0) for @short;
	}
	open(my $f, '>', "$file.burst") or die;
};
open(my $f, '>', "$file.new") or die; print $f $$; close $f; rename "$file.new", $file;
while (1) { select(undef, undef, undef, $tick || undef) }
`

// crowd is that host: what the agent watches, and what else is there.
type crowd struct {
	dir, config string
	mains       []*exec.Cmd
	others      []*exec.Cmd
	conns       []net.Conn
}

func newCrowd(ctx context.Context) (*crowd, error) {
	dir, err := os.MkdirTemp("", "crosscheck-bench-")
	if err != nil {
		return nil, err
	}
	c := &crowd{dir: dir, config: filepath.Join(dir, "crosscheck.yml")}
	if err := c.build(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *crowd) build(ctx context.Context) error {
	var config strings.Builder
	config.WriteString("listen: 127.0.0.1:0\nalertmanager: {config_file: alertmanager.yml}\nservices:\n")
	for i := range crowdServices {
		addr, err := c.service(i)
		if err != nil {
			return err
		}
		fmt.Fprintf(&config, "  - name: s%d\n    checks:\n      - port: {address: %q}\n      - workers: {pid_file: %s}\n", i, addr, c.pidFile(i))
	}
	for range crowdOthers {
		cmd := exec.Command("sleep", "1000000")
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		c.others = append(c.others, cmd)
	}
	if err := c.connect(crowdSockets / 2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // chosen: 900 forks take a second or two
	defer cancel()
	for i := range crowdServices {
		for {
			if _, err := os.Stat(c.pidFile(i)); err == nil {
				break
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("service %d wrote no pid file: %w", i, err)
			}
		}
	}
	return errors.Join(os.WriteFile(c.config, []byte(config.String()), 0o600),
		os.WriteFile(filepath.Join(c.dir, "alertmanager.yml"), []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600))
}

func (c *crowd) pidFile(i int) string { return filepath.Join(c.dir, fmt.Sprintf("s%d.pid", i)) }

// service starts one service.
func (c *crowd) service(i int) (addr net.Addr, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	shared, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	tick := "1"
	if i%crowdRestingOf == 0 {
		tick = "0"
	}
	cmd := exec.Command("perl", "-e", crowdMain, strconv.Itoa(crowdWorkers), tick, c.pidFile(i), strconv.Itoa(crowdBurst))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{shared}, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.mains = append(c.mains, cmd)
	return l.Addr(), nil
}

// connect opens n connections over the loopback: two sockets each.
func (c *crowd) connect(n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	for range n {
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return fmt.Errorf("%d of %d connections: %w", len(c.conns)/2, n, err)
		}
		in, err := l.Accept()
		if err != nil {
			_ = out.Close()
			return err
		}
		c.conns = append(c.conns, out, in)
	}
	return nil
}

func (c *crowd) close() {
	for _, cmd := range c.mains {
		_ = cmd.Process.Signal(unix.SIGTERM) // it ends its workers
	}
	for _, cmd := range c.others {
		_ = cmd.Process.Kill()
	}
	for _, cmd := range append(c.mains, c.others...) {
		_ = cmd.Wait()
	}
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	_ = os.RemoveAll(c.dir) // a temporary directory; nothing depends on it
}
