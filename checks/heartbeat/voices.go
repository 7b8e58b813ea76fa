package heartbeat

import (
	"fmt"
	"strconv"
	"time"
)

// voice is one that beats: the workload, or a worker.
type voice struct {
	last time.Time // zero if it never did
	// triggered: it asked to be taken for silent, and has not beaten since.
	triggered bool
}

// intent is what the workload announced last.
type intent struct {
	stopping, reloading bool
	pid                 int
	at                  time.Time
}

// who is the worker that sent b: as it says, or as a message of the same process
// said before; counted workers without a name are their pids. Empty for none.
func (c *Check) who(b *Beat) (string, error) {
	if len(c.cfg.Workers) == 0 && c.cfg.Count == 0 {
		return "", nil
	}
	if len(c.pids) > 4*WorkersMost { // pids that were given away long ago
		clear(c.pids)
	}
	switch {
	case b.Worker != "" && c.workers[b.Worker] == nil && c.cfg.Count == 0:
		return "", fmt.Errorf("%w: %q", ErrUnknown, b.Worker)
	case b.Worker != "":
		if b.PID > 0 {
			c.pids[b.PID] = b.Worker
		}
		return b.Worker, c.room(b.Worker)
	case b.PID > 0 && c.pids[b.PID] != "":
		return c.pids[b.PID], nil
	case b.PID > 0 && c.cfg.Count > 0:
		name := "pid " + strconv.Itoa(b.PID)
		return name, c.room(name)
	}
	return "", nil // of the workload as a whole
}

// room makes room for one more counted worker: those that were replaced long ago
// go first.
func (c *Check) room(name string) error {
	if c.workers[name] != nil || c.cfg.Count == 0 || len(c.workers) < 2*WorkersMost {
		return nil
	}
	for old, w := range c.workers {
		if c.silentLocked(*w, c.now()) {
			delete(c.workers, old)
		}
	}
	if len(c.workers) >= 2*WorkersMost {
		return fmt.Errorf("%w: more than %d workers at a time", ErrTooMany, 2*WorkersMost)
	}
	return nil
}

// announce takes what the workload says it is about to do; workers who do are
// missed all the same. A stop ends when somebody is ready, when another process
// beats where there is but one, or with a beat at a time when the last should
// long have been late; a reload ends so, too.
func (c *Check) announce(b *Beat, worker bool, now time.Time) (wake bool) {
	was := c.intent
	lives := !b.Mute && (was.stopping || was.reloading)
	another := was.stopping && b.PID != was.pid && len(c.cfg.Workers) == 0 && c.cfg.Count == 0
	switch {
	case b.Stopping && !worker:
		if !was.stopping {
			c.intent = intent{stopping: true, pid: b.PID, at: now}
		}
	case b.Reloading && !worker:
		if !was.reloading { // said again, it is the same reload: its limit runs
			c.intent = intent{reloading: true, pid: b.PID, at: now}
		}
	case b.Ready && !worker, lives && (another || now.Sub(was.at) > c.limit()):
		c.intent = intent{}
	}
	return was.stopping != c.intent.stopping || was.reloading != c.intent.reloading
}
