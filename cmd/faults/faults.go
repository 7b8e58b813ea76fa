//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers/inject"
)

// fault is a row of the matrix: something that happens to a server.
type fault struct {
	Name string
	// Sign is the number of a fault; empty for look-alikes.
	Sign  string
	Title string
	// LookAlike: the server is well, or heals by itself in time; it is watched for
	// a whole Window instead of until the cause is known.
	LookAlike bool
	Window    time.Duration
	// Weight is how many cells' share of the machine it takes; 0 means 1, alone
	// means all of it.
	Weight int
	// Prepare changes how the server is started; may be nil.
	Prepare func(*servers.Options)
	// Do makes it happen. ctx ends with the cell; what goes on until then is
	// started with cell.loop.
	Do func(ctx context.Context, c *cell) error
}

// alone is the weight of a cell that wants the machine to itself.
const alone = 1 << 10

// settle is how long a cell is watched on after its cause is known: whether it
// stays what it is. Chosen: longer than the repeats of an urgent finding.
const settle = 2 * time.Second

// allFaults lists the rows in the order of the issue.
func allFaults() []fault {
	return append([]fault{
		{Name: "crash-loop", Sign: "ii", Title: "every worker dies as soon as it is born", Weight: 2, Do: crashLoop},
		{Name: "half-loop", Sign: "ii-k", Title: "the workers of half of the slots die as soon as they are born", Weight: 2, Do: halfLoop},
		{Name: "freeze-all", Sign: "iii", Title: "SIGSTOP to every worker", Do: freezeAll},
		{Name: "freeze-one", Sign: "iv", Title: "SIGSTOP to one worker", Do: freezeOne},
		{Name: "spin-one", Sign: "v", Title: "one worker in an endless loop", Weight: 2, Do: spinOne},
		{Name: "spin-all", Sign: "v'", Title: "every worker in an endless loop", Weight: alone, Do: spinAll},
		{Name: "shut", Sign: "vi", Title: "shutdown(2) of the listener, descriptors kept", Do: shutListener},
		{Name: "close", Sign: "vi'", Title: "close(2) of the listener in every process that holds it", Do: closeListener},
		{Name: "imposter", Sign: "vii", Title: "the listener is closed and a stranger binds the port", Do: imposter},
		{Name: "intruder", Sign: "vii-b", Title: "a stranger binds beside it with SO_REUSEPORT and never accepts", Do: intruder},
		{Name: "main-frozen", Sign: "viii", Title: "SIGSTOP to main", Do: mainFrozen},
		{Name: "zombies", Sign: "ix", Title: "SIGSTOP to main, SIGKILL to every worker", Do: zombies},
		{Name: "descriptors", Sign: "x", Title: "no worker may open another descriptor", Do: descriptors},
		{Name: "queue", Sign: "x'", Title: "every worker hangs in a system call, and connections queue", Do: queueFull},
		{Name: "main-loop", Sign: "xi", Title: "a supervisor restarts a main that is killed as soon as it is born", Do: mainLoop},
		{Name: "oom", Sign: "xii", Title: "the youngest worker is killed for memory every 5 s", Do: oom},
	}, lookAlikes()...)
}

func faultNamed(name string) (fault, error) {
	for _, f := range allFaults() {
		if f.Name == name {
			return f, nil
		}
	}
	return fault{}, fmt.Errorf("no fault %q", name)
}

// send sends a signal to each process; one that is gone is no error.
func send(sig unix.Signal, pids ...int) error {
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%s to %d: %w", unix.SignalName(sig), pid, err)
		}
	}
	return nil
}

// killEvery kills what victims returns, once a millisecond, until ctx ends: no
// server's worker lives long enough to serve.
func killEvery(ctx context.Context, victims func() []int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		_ = send(unix.SIGKILL, victims()...) // gone already is as good
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func killOnce(_ context.Context, c *cell) error { return send(unix.SIGKILL, c.srv.Workers()...) }

func crashLoop(ctx context.Context, c *cell) error {
	switch {
	case c.srv.Lab != nil:
		return c.srv.Lab.AddRoute("example.com/", "") // the founding fault
	case c.srv.Spec.Elastic:
		// A worker forked for a request would answer before a killer finds it.
		return os.WriteFile(c.srv.Options.Dir+"/www/crash", nil, 0o644)
	}
	c.loop(func() { killEvery(ctx, c.srv.Workers) })
	return nil
}

func halfLoop(ctx context.Context, c *cell) error {
	workers := c.srv.Workers()
	spared := workers[:len(workers)/2]
	c.loop(func() {
		killEvery(ctx, func() []int {
			return slices.DeleteFunc(c.srv.Workers(), func(pid int) bool { return slices.Contains(spared, pid) })
		})
	})
	return nil
}

func freezeAll(_ context.Context, c *cell) error { return send(unix.SIGSTOP, c.srv.Workers()...) }

func freezeOne(_ context.Context, c *cell) error { return send(unix.SIGSTOP, c.srv.Workers()[0]) }

func spinOne(ctx context.Context, c *cell) error {
	if c.srv.Lab != nil {
		_, err := c.srv.Lab.Spin(1)
		return err
	}
	if !c.srv.Spec.Spins {
		return inject.Spin(c.srv.Workers()[0])
	}
	c.loop(func() { c.srv.Hold(ctx, "/spin") })
	return nil
}

// spinAll keeps sending endless requests until nobody answers.
func spinAll(ctx context.Context, c *cell) error {
	if c.srv.Lab != nil {
		_, err := c.srv.Lab.Spin(c.srv.Spec.Workers)
		c.begin()
		return err
	}
	if !c.srv.Spec.Spins {
		for _, pid := range c.srv.Workers() {
			for _, tid := range servers.Threads(pid) {
				if err := inject.Spin(tid); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for range 20 { // chosen: a reuseport group hands several to one worker
		for range c.srv.Spec.Workers {
			c.loop(func() { c.srv.Hold(ctx, "/spin") })
		}
		c.begin()
		if c.silent(ctx) {
			return nil
		}
	}
	return errors.New("it answers in spite of endless requests")
}

// silent reports whether the server answers none of three requests: one alone may
// have come to a worker that spins beside others that do not.
func (c *cell) silent(ctx context.Context) bool {
	for range 3 {
		if _, err := c.srv.Get(ctx, "/"); err == nil {
			return false
		}
	}
	return true
}

func mainFrozen(_ context.Context, c *cell) error { return send(unix.SIGSTOP, c.srv.Main()) }

func zombies(ctx context.Context, c *cell) error {
	workers := c.srv.Workers()
	if err := send(unix.SIGSTOP, c.srv.Main()); err != nil {
		return err
	}
	return send(unix.SIGKILL, workers...)
}

func descriptors(_ context.Context, c *cell) error {
	for _, pid := range c.srv.Workers() {
		if err := inject.Exhaust(pid); err != nil {
			return err
		}
	}
	return nil
}

func queueFull(ctx context.Context, c *cell) error {
	for _, pid := range c.srv.Workers() {
		for _, tid := range servers.Threads(pid) {
			if err := inject.Hang(tid); err != nil {
				return err
			}
		}
	}
	c.crowd(ctx)
	return nil
}

// oomEvery is the issue's.
const oomEvery = 5 * time.Second

func oom(ctx context.Context, c *cell) error {
	// Chosen: all servers here live in a tenth of it, and filling it takes no time.
	const limit = 256 << 20
	g, err := newGroup("memory", c.group)
	if err != nil {
		return err
	}
	if err := g.limitMemory(limit); err != nil {
		return err
	}
	if err := g.add(append([]int{c.srv.Main()}, c.srv.Workers()...)...); err != nil {
		return err
	}
	c.begin()
	c.loop(func() {
		tick := time.NewTicker(oomEvery)
		defer tick.Stop()
		for {
			workers := c.srv.Workers()
			if len(workers) > 0 {
				c.note(inject.Allocate(slices.Max(workers), 4*limit)) // the highest pid is the youngest: a namespace's pids do not wrap in a minute
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}
