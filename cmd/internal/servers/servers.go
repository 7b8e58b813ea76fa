//go:build linux

// Package servers starts real servers from generated configuration, each with
// its files in one folder and without systemd, so that they can be broken and
// watched. It touches only processes it started, and judges nothing.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	labs "github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// Spec is one kind of server as the fault matrix starts it.
type Spec struct {
	Name string
	// Package is the Debian package that brings Binary; empty for the lab.
	Package, Binary string
	// Workers is how many worker processes there are once it has settled.
	Workers int
	// Elastic: it starts with none, and forks workers as requests come.
	Elastic bool
	// Reuseport: its listening sockets let another process of the same user bind
	// the same port (SO_REUSEPORT).
	Reuseport bool
	// Reload and Drain are the signals to main for a graceful reload and a
	// graceful stop; zero if the server has none.
	Reload, Drain unix.Signal
	// Recycles: workers can be told to end with exit 0 after some requests.
	Recycles bool
	// Upgrades: main can replace its own binary (nginx: USR2, WINCH, QUIT).
	Upgrades bool
	// Downloads: it serves /big, a body larger than any socket buffer.
	Downloads bool
	// Spins: a request for /spin never ends in user space.
	Spins bool
	// FastCGI: it does not speak HTTP; Look asks it.
	FastCGI bool
	// Answer is what the answer to / contains.
	Answer string

	// files are its configuration by name under the folder, argv its command line
	// after the binary. Both are pure.
	files func(Options) map[string]string
	argv  func(Options) []string
	// ownPID: it writes its pid file itself; otherwise we write it at the start.
	ownPID bool
	// launch replaces running Binary (the lab).
	launch func(context.Context, *Server) error
	// refresh replaces the signal Reload.
	refresh func(*Server) error
}

// Options say how to start one server. Dir and Addr must be set.
type Options struct {
	Dir  string
	Addr netip.AddrPort
	// Recycle is after how many requests a worker ends with exit 0; 0 is never.
	Recycle int
	// IdleTimeout is after how many seconds an elastic pool ends an idle worker;
	// 0 means 60.
	IdleTimeout int
	// Daemon lets the server leave its parent, where it can (nginx): it refuses to
	// upgrade its binary otherwise.
	Daemon bool
	// Origin is where a proxy finds /big.
	Origin netip.AddrPort
}

func (o Options) path(name string) string { return filepath.Join(o.Dir, name) }

// PIDFile is where the main process's id stands, whoever writes it.
func (o Options) PIDFile() string { return o.path("main.pid") }

// Server is a running server.
type Server struct {
	Spec    Spec
	Options Options

	// Lab is set for the lab, which has faults of its own.
	Lab *labs.Lab

	binary string
	main   *process
}

// ErrMissing says that a server is not installed.
var ErrMissing = errors.New("not installed")

// All lists the servers, in the order of the matrix.
func All() []Spec {
	all := []Spec{lab(), labReuseport(), nginx(), nginxReuseport(), haproxy(), gunicorn(), fpmStatic(), fpmOndemand(),
		apachePrefork(), apacheEvent(), uwsgi(), varnish(), lighttpd()}
	for i := range all {
		all[i].Answer = cmp.Or(all[i].Answer, strings.TrimSpace(Body))
	}
	return all
}

// Start starts main and returns when the server answers. One that does not
// within startLimit has failed to start; the lab lives as long as ctx.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Launch(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it took longer than %s", startLimit))
	defer cancel()
	return s.AwaitAnswer(ctx)
}

// startLimit is chosen: ten times what the slowest needs on a quiet machine
// (varnish compiles its configuration).
const startLimit = 20 * time.Second

// Launch starts main and returns at once, before it serves. With Daemon it
// returns when the pid file names the daemon.
func (s *Server) Launch(ctx context.Context) error {
	if s.Spec.launch != nil {
		return s.Spec.launch(ctx, s)
	}
	p, err := run(exec.Command(s.binary, s.Spec.argv(s.Options)...), s.Options.path("output"))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Spec.Name, err)
	}
	s.main = p
	if s.Options.Daemon {
		return s.awaitDaemon(ctx)
	}
	if s.Spec.ownPID {
		return nil
	}
	return s.WritePID(p.pid)
}

func (s *Server) awaitDaemon(ctx context.Context) error {
	return until(ctx, "the daemon's pid file", func() bool {
		pid := s.Main()
		return pid > 0 && Alive(pid)
	})
}

// WritePID writes the pid file, atomically as servers do.
func (s *Server) WritePID(pid int) error {
	tmp := s.PIDFile() + ".new"
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(pid)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.PIDFile())
}

// AwaitAnswer returns when the server answers as it should.
func (s *Server) AwaitAnswer(ctx context.Context) error {
	err := until(ctx, s.Spec.Name+"'s answer", func() bool {
		body, err := s.Get(ctx, "/")
		return err == nil && strings.Contains(body, s.Spec.Answer) || s.main != nil && s.main.ended() && !s.Options.Daemon
	})
	if s.main != nil && s.main.ended() && !s.Options.Daemon {
		return fmt.Errorf("%s ended at its start: %s", s.Spec.Name, s.Output())
	}
	return err
}

// Output is what the server last wrote, at most 2 KiB.
func (s *Server) Output() string {
	text := ""
	for _, name := range []string{"output", "error.log"} {
		raw, err := os.ReadFile(s.Options.path(name))
		if err != nil {
			continue
		}
		text += string(raw[max(0, len(raw)-1024):])
	}
	return strings.TrimSpace(text)
}

// PIDFile names the file that holds main's process id.
func (s *Server) PIDFile() string { return s.Options.PIDFile() }

// Main is main's process id as the pid file has it; 0 if it has none.
func (s *Server) Main() int {
	raw, err := os.ReadFile(s.PIDFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0
	}
	return pid
}

// Workers lists main's living children.
func (s *Server) Workers() []int { return Children(s.Main()) }

// Signal sends a signal to main.
func (s *Server) Signal(sig unix.Signal) error {
	pid := s.Main()
	if pid <= 0 {
		return fmt.Errorf("%s has no main process", s.Spec.Name)
	}
	return unix.Kill(pid, sig)
}

// Refresh reloads the server gracefully.
func (s *Server) Refresh() error {
	switch {
	case s.Spec.refresh != nil:
		return s.Spec.refresh(s)
	case s.Spec.Reload == 0:
		return fmt.Errorf("%s cannot reload", s.Spec.Name)
	}
	return s.Signal(s.Spec.Reload)
}

// Kill ends main and its children at once and returns when they are gone.
func (s *Server) Kill() {
	pid := s.Main()
	if pid <= 0 || !Alive(pid) {
		return
	}
	for _, p := range append([]int{pid}, Children(pid)...) {
		_ = unix.Kill(p, unix.SIGKILL) // gone already is as good
	}
	for Alive(pid) {
		time.Sleep(time.Millisecond)
	}
}

// until polls a condition until it holds or ctx ends.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Started is the process id of the main that Launch last started; 0 if it did
// not start one itself.
func (s *Server) Started() int {
	if s.main == nil {
		return 0
	}
	return s.main.pid
}
