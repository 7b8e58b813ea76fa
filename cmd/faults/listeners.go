//go:build linux

package main

import (
	"context"
	"errors"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers/inject"
)

// holders are the processes that may hold the listener, workers first.
func (c *cell) holders() []int { return append(c.srv.Workers(), c.srv.Main()) }

func shutListener(_ context.Context, c *cell) error {
	shut := 0
	for _, pid := range c.holders() {
		err := inject.Shut(pid)
		switch {
		case err == nil:
			shut++
		case !errors.Is(err, inject.ErrNoListener):
			return err
		}
	}
	if shut == 0 {
		return inject.ErrNoListener
	}
	return nil
}

func closeListener(_ context.Context, c *cell) error {
	if c.srv.Lab != nil {
		return c.srv.Lab.CloseListeners()
	}
	// Main first: what it forks from then on has no listener. A worker that it
	// forked meanwhile is found in the next round.
	for round := range 10 {
		closed := 0
		for _, pid := range append([]int{c.srv.Main()}, c.srv.Workers()...) {
			n, err := closeListeners(pid)
			if err != nil && servers.Alive(pid) {
				return err
			}
			closed += n
		}
		if closed == 0 && round == 0 {
			return inject.ErrNoListener
		}
		if closed == 0 {
			return nil
		}
	}
	return errors.New("its main keeps opening the listener")
}

// closeListeners closes a process's listening sockets and counts them.
func closeListeners(pid int) (closed int, err error) {
	fds, err := inject.Listeners(pid)
	if err != nil {
		return 0, err
	}
	for _, fd := range fds {
		if err := inject.CloseFD(pid, fd); err != nil {
			return closed, err
		}
		closed++
	}
	return closed, nil
}

func imposter(ctx context.Context, c *cell) error {
	start, err := c.stranger(ctx)
	if err != nil {
		return err
	}
	c.begin()
	if err := closeListener(ctx, c); err != nil {
		return err
	}
	return start("answer")
}

func intruder(ctx context.Context, c *cell) error {
	start, err := c.stranger(ctx)
	if err != nil {
		return err
	}
	c.begin()
	return start("deaf")
}
