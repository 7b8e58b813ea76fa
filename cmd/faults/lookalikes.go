//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

// window is how long most look-alikes are watched. Chosen: longer than the
// windows of the rules about workers and listeners (JUDGING section 3: 2.5, 3 and
// 5 s) and four outside looks.
const window = 9 * time.Second

// graceWindow also outlasts the restart grace of 10 s.
const graceWindow = 13 * time.Second

func lookAlikes() []fault {
	return []fault{
		{Name: "kill-once", Sign: "i", Title: "SIGKILL to every worker, once", LookAlike: true, Window: window, Do: killOnce},
		{Name: "idle", Title: "nothing happens", LookAlike: true, Window: window, Do: func(context.Context, *cell) error { return nil }},
		{Name: "busy", Title: "8 clients, 20 ms of CPU a request where it can compute", LookAlike: true, Window: window, Weight: 2, Do: busy},
		{Name: "reload", Title: "graceful reload", LookAlike: true, Window: window, Do: func(_ context.Context, c *cell) error { return c.srv.Refresh() }},
		{Name: "stop", Title: "graceful stop while a slow download goes on", LookAlike: true, Window: graceWindow, Do: stop},
		{Name: "upgrade", Title: "binary upgrade: USR2, WINCH, QUIT", LookAlike: true, Window: graceWindow,
			Prepare: func(o *servers.Options) { o.Daemon = true }, Do: upgrade},
		{Name: "replace-one", Title: "SIGKILL to one worker, once", LookAlike: true, Window: window,
			Do: func(_ context.Context, c *cell) error { return send(unix.SIGKILL, c.srv.Workers()[0]) }},
		{Name: "recycle", Title: "workers end with exit 0 after 10 requests, under load", LookAlike: true, Window: window, Weight: 2,
			Prepare: func(o *servers.Options) { o.Recycle = 10 }, Do: recycle},
		{Name: "zero", Title: "an on-demand pool ends its idle workers after 1 s, between looks", LookAlike: true, Window: window,
			Prepare: func(o *servers.Options) { o.IdleTimeout = 1 }, Do: func(context.Context, *cell) error { return nil }},
		{Name: "restart", Title: "stop and start within the grace", LookAlike: true, Window: graceWindow, Do: restart},
		{Name: "starved", Title: "another control group takes most of the CPU", LookAlike: true, Window: window, Weight: alone, Do: starved},
	}
}

// clients is how many requests are under way at a time while a server is busy.
const clients = 8

func busy(ctx context.Context, c *cell) error {
	path := "/"
	if c.srv.Spec.Spins { // what can spin can compute
		path = "/work"
	}
	for range clients {
		c.loop(func() {
			for ctx.Err() == nil {
				_, _ = c.srv.Get(ctx, path) // whether looks are answered is judged elsewhere
			}
		})
	}
	return nil
}

// recycle asks 50 times a second, so that a worker of 4 lives for 0.8 s; 10 times
// where main waits between births, for it would serve nobody at times otherwise.
func recycle(ctx context.Context, c *cell) error {
	pace := 20 * time.Millisecond
	if slices.Contains(pausing, c.srv.Spec.Name) {
		pace = 100 * time.Millisecond
	}
	c.loop(func() {
		for pause(ctx, pace) {
			_, _ = c.srv.Get(ctx, "/")
		}
	})
	return nil
}

// grown is how long a server runs before it is stopped. Within the first 5 s a
// stop and a reload that was begun with the start look the same (checks/inside).
const grown = 6 * time.Second

func stop(ctx context.Context, c *cell) error {
	if !pause(ctx, grown) {
		return ctx.Err()
	}
	began := make(chan struct{})
	c.loop(func() {
		n, err := c.srv.Download(ctx, began)
		if err != nil && n < servers.BigBytes {
			c.note(fmt.Errorf("the download was cut off after %d bytes: %w", n, err))
		}
	})
	select {
	case <-began:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.begin()
	return c.srv.Signal(c.srv.Spec.Drain)
}

// upgrade follows nginx's documentation, "Upgrading Executable on the Fly".
func upgrade(ctx context.Context, c *cell) error {
	old := c.srv.Main()
	if err := c.srv.Signal(unix.SIGUSR2); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for c.srv.Main() == old || len(c.srv.Workers()) < c.srv.Spec.Workers {
		if !pause(within, 10*time.Millisecond) {
			return errors.New("no new main appeared")
		}
	}
	if err := send(unix.SIGWINCH, old); err != nil {
		return err
	}
	pause(ctx, time.Second)
	return send(unix.SIGQUIT, old)
}

// restartPause is how long nobody is there during a restart. Chosen: what a
// supervisor takes, well within the grace.
const restartPause = 500 * time.Millisecond

func restart(ctx context.Context, c *cell) error {
	if c.srv.Lab != nil {
		if err := c.srv.Lab.KillMain(); err != nil { // it knows no other stop after which it can start
			return err
		}
		pause(ctx, restartPause)
		return c.srv.Lab.Restart()
	}
	main := c.srv.Main()
	if err := send(unix.SIGTERM, main); err != nil {
		return err
	}
	for servers.Alive(main) {
		if !pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	pause(ctx, restartPause)
	return c.srv.Start(ctx)
}

// starved starts three endless loops a core in a group that outweighs ours.
func starved(ctx context.Context, c *cell) error {
	g, err := newGroup("cpu", c.group)
	if err != nil {
		return err
	}
	if err := g.favour(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", roleHog, strconv.Itoa(3*runtime.NumCPU()), g.path)
	cmd.Stderr = os.Stderr
	c.begin()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the hog: %w", err)
	}
	c.loop(func() { _ = cmd.Wait() }) // ends with the cell
	return nil
}

// hogMain joins a control group and burns CPU in n threads until it is killed.
func hogMain(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s THREADS GROUP", roleHog)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if err := (group{path: args[1]}).add(os.Getpid()); err != nil {
		return err
	}
	runtime.GOMAXPROCS(n)
	for range n {
		go func() {
			for x := uint64(1); ; {
				x = x*31 + 1
			}
		}()
	}
	select {}
}
