//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Of a main that loops: how long each life lasts, and how long the supervisor
// waits. Chosen: the default RestartSec of systemd is 100 ms.
const (
	mainLives    = 50 * time.Millisecond
	restartAfter = 100 * time.Millisecond
)

// mainLoop plays a supervisor that writes the pid file, and the bug that ends
// every main soon after its birth.
func mainLoop(ctx context.Context, c *cell) error {
	if c.srv.Lab != nil {
		return c.srv.Lab.LoopMain()
	}
	c.srv.Kill()
	c.loop(func() {
		for pause(ctx, restartAfter) {
			if err := c.srv.Launch(ctx); err != nil {
				c.note(err)
				return
			}
			if err := c.srv.WritePID(c.srv.Started()); err != nil {
				c.note(err)
				return
			}
			pause(ctx, mainLives)
			c.srv.Kill()
		}
	})
	return nil
}

// pause waits and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// stranger prepares a process that is none of the server's: another executable,
// in a copy, for the lab's is this program. The returned function starts it and
// returns when it has bound the port.
func (c *cell) stranger(ctx context.Context) (start func(mode string) error, err error) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	path := c.srv.Options.Dir + "/stranger"
	if err := os.WriteFile(path, exe, 0o755); err != nil {
		return nil, err
	}
	return func(mode string) error {
		cmd := exec.CommandContext(ctx, path, roleImposter, c.srv.Options.Addr.String(), mode)
		cmd.Stderr = os.Stderr
		ready, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start the stranger: %w", err)
		}
		c.loop(func() { _ = cmd.Wait() }) // ends with the cell
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("the stranger could not bind %s: %w", c.srv.Options.Addr, err)
		}
		return nil
	}, nil
}

// imposterMain binds an address, with SO_REUSEPORT, and answers in the name of
// somebody else, or never accepts.
func imposterMain(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s ADDRESS answer|deaf", roleImposter)
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	l, err := lc.Listen(context.Background(), "tcp", args[0])
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := os.Stdout.Write([]byte("\n")); err != nil {
		return err
	}
	for args[1] == "deaf" {
		time.Sleep(time.Hour) // until the cell ends
	}
	const text = "who are you?\n"
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = c.Read(make([]byte, 4096)) // whatever is asked
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n" + text))
		}()
	}
}

// crowdSize is how many connections queue. Chosen: above the usual backlog of
// 128; where it is 511 or more no queue is ever full, and what does not drain is
// the sign.
const crowdSize = 150

// crowd opens connections that ask for something and wait until ctx ends.
func (c *cell) crowd(ctx context.Context) {
	for range crowdSize {
		c.loop(func() {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", c.srv.Options.Addr.String())
			if err != nil {
				return // the queue is full
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")) // a server with TCP_DEFER_ACCEPT wants bytes
			<-ctx.Done()
		})
	}
}
