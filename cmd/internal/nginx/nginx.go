//go:build linux

// Package nginx runs a real nginx for the end-to-end tests and the benchmark,
// and breaks it in the ways a server breaks. It touches only processes it
// started.
package nginx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrMissing says that nginx is not installed.
var ErrMissing = errors.New("nginx is not installed (Debian package nginx-light)")

// Server is a running nginx: a main process and its workers.
type Server struct {
	addr   netip.AddrPort
	dir    string
	binary string
	cmd    *exec.Cmd
	done   chan struct{}
}

const conf = `daemon off;
master_process on;
worker_processes %d;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path %[2]s/body;
  proxy_temp_path %[2]s/proxy;
  fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi;
  scgi_temp_path %[2]s/scgi;
  server {
    listen %[3]s;
    location / { return 200 "served\n"; }
  }
}
`

// Start starts nginx with its files in dir, on a free port of loopback, and
// returns when it accepts.
func Start(ctx context.Context, dir string, workers int) (*Server, error) {
	binary, err := exec.LookPath("nginx")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, ErrMissing
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{addr: l.Addr().(*net.TCPAddr).AddrPort(), dir: dir, binary: binary}
	if err := l.Close(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.conf(), fmt.Appendf(nil, conf, workers, dir, s.addr), 0o644); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

func (s *Server) conf() string { return filepath.Join(s.dir, "nginx.conf") }

func (s *Server) start(ctx context.Context) error {
	var stderr bytes.Buffer
	s.cmd = exec.Command(s.binary, "-p", s.dir, "-c", s.conf())
	s.cmd.Stderr = &stderr
	// Should we be killed, nginx must not outlive us.
	s.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	go func() {
		_ = s.cmd.Wait() // how it ended is told by stderr, if anybody asks
		close(done)
	}()
	for {
		if c, err := net.DialTimeout("tcp", s.addr.String(), time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-done:
			return fmt.Errorf("start nginx: %s", strings.TrimSpace(stderr.String()))
		case <-ctx.Done():
			s.Stop()
			return ctx.Err()
		}
	}
}

// Stop ends nginx and waits for it.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(3 * time.Second):
		_ = s.KillWorkers()
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// Restart stops nginx and starts it anew: a new generation on the same port.
func (s *Server) Restart(ctx context.Context) error {
	s.Stop()
	return s.start(ctx)
}

// Reload is nginx's graceful reload.
func (s *Server) Reload() error { return s.cmd.Process.Signal(unix.SIGHUP) }

// PID is main's process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// PIDFile is where nginx wrote it.
func (s *Server) PIDFile() string { return filepath.Join(s.dir, "nginx.pid") }

// Addr is where nginx listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Workers lists main's children.
func (s *Server) Workers() ([]int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.PID()))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// KillWorkers kills every worker once.
func (s *Server) KillWorkers() error {
	pids, err := s.Workers()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
	}
	return nil
}

// KillLoop kills every worker, again and again, until ctx ends.
func (s *Server) KillLoop(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := s.KillWorkers(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ShutListeners calls shutdown(2) on main's listening sockets, which it shares
// with its workers: nobody listens, every descriptor stays open, everybody
// lives. It needs the right to trace main (pidfd_getfd(2)).
func (s *Server) ShutListeners() error {
	pidfd, err := unix.PidfdOpen(s.PID(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(pidfd)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID()))
	if err != nil {
		return err
	}
	shut := 0
	for _, entry := range fds {
		n, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			continue // closed meanwhile
		}
		if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listening == 1 {
			if err := unix.Shutdown(fd, unix.SHUT_RDWR); err == nil {
				shut++
			}
		}
		_ = unix.Close(fd)
	}
	if shut == 0 {
		return errors.New("nginx has no listening socket to shut")
	}
	return nil
}
