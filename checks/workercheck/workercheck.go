// Package workercheck is the workers kind: it turns the host observer's
// snapshots of one instance into facts about its main process and workers. It
// opens no process file itself and proves nothing: what the facts mean is
// decided by the judge.
package workercheck

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

// Config says which target of the observer to look at.
type Config struct{ Target string }

// Source is where snapshots come from: the host observer.
type Source interface {
	Snapshot(target string) (host.Snapshot, bool)
}

const (
	// localAfter is how long nobody must have served before we connect
	// ourselves; chosen: longer than any proof that needs no connection.
	localAfter = time.Second
	// repeatUrgent is how often a finding leaves at once while nothing changes;
	// chosen: a quarter of the second in which a page is promised.
	repeatUrgent = 250 * time.Millisecond
	// exitLingers is how long an exit asks for a close look; the observer sweeps
	// fast for as long.
	exitLingers = 2 * time.Second
	// staleAfter is when a snapshot is no news any more: five sweeps.
	staleAfter = 5 * host.SweepEvery
)

// Check looks at one instance. Make it with New; it is for one schedule, which
// never overlaps its looks, but is safe if they do.
type Check struct {
	cfg    Config
	source Source
	now    func() time.Duration

	mu      sync.Mutex // guards the fields below
	tracker Tracker
	looker  *local.Looker
	local   Answer
	began   time.Time // of the look whose answer local is
	empty   bool      // the look in flight began while no worker lived
	sent    matters
	sentAt  time.Duration
	alarmed bool
}

// New makes the check.
func New(cfg Config, source Source) *Check {
	return &Check{cfg: cfg, source: source, now: host.BootTime}
}

// matters is what makes a suspicious finding urgent when it changes.
type matters struct {
	outcome    checks.Outcome
	generation string
	main       checks.ProcState
	serving    int
	chain      int
	none       bool // NoneLooks has reached 2
	local      checks.LocalLook
}

// Look reports the newest snapshot. It never waits.
func (c *Check) Look(ctx context.Context) checks.Finding {
	begin := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.look(ctx)
	f.Duration = time.Since(begin)
	return f
}

func (c *Check) look(ctx context.Context) checks.Finding {
	if ctx.Err() != nil {
		return checks.BlindFinding(checks.ReasonShuttingDown, "shutting down")
	}
	snap, ok := c.source.Snapshot(c.cfg.Target)
	now := c.now()
	switch {
	case !ok:
		return checks.BlindFinding(checks.ReasonMainUnknown, "the host observer has not looked yet")
	case snap.Trouble != (host.Trouble{}):
		return checks.BlindFinding(snap.Trouble.Reason, snap.Trouble.Detail)
	case now-snap.At > staleAfter:
		return checks.BlindFinding(checks.ReasonOwnLimit, fmt.Sprintf("the host observer last looked %s ago", (now-snap.At).Round(time.Second)))
	case snap.Main.Status == host.MainUnknown:
		return checks.BlindFinding(checks.ReasonMainUnknown, snap.Main.Why)
	}
	facts := c.tracker.Observe(snap, c.local, now)
	c.lookLocally(&snap, &facts, now)
	f := Conclude(&facts, snap.Main.Why)
	exited := c.tracker.lastExit != 0 && now-c.tracker.lastExit < exitLingers
	f.Suspicious = facts.Serving == 0 || facts.Main.State == checks.ProcGone || exited
	f.Urgent = c.urgent(&f, now)
	return f
}

// lookLocally makes our own connection while nobody serves, off our path.
func (c *Check) lookLocally(snap *host.Snapshot, facts *checks.WorkerFacts, now time.Duration) {
	addr, known := known(snap)
	if facts.Serving > 0 || facts.NoneFor < localAfter || facts.Main.State == checks.ProcGone || !known {
		if c.looker != nil {
			c.looker.Rest()
		}
		c.local = Answer{}
		return
	}
	if c.looker == nil || c.looker.Addr != addr {
		c.looker = &local.Looker{Addr: addr, Every: time.Second}
	}
	clock := time.Now()
	last, started := c.looker.Look(clock)
	if last.Look != "" && (c.local.Look == "" || !last.Began.Equal(c.began)) {
		c.began = last.Began
		c.local = Answer{Look: last.Look, Empty: c.empty, Began: now - clock.Sub(last.Began), Ended: now - clock.Sub(last.Ended)}
	}
	if started {
		c.empty = facts.LivingWorkers == 0
	}
	facts.Local = last.Look
}

// known is a listener of the service: one that listens, else one that did.
func known(snap *host.Snapshot) (addr netip.AddrPort, ok bool) {
	for _, l := range snap.Listeners {
		if l.Listening {
			return l.Addr, true
		}
		if l.EverListening && !ok {
			addr, ok = l.Addr, true
		}
	}
	return addr, ok
}

// urgent decides whether a finding leaves at once: what matters changed, it is
// time to say so again, or all is well again.
func (c *Check) urgent(f *checks.Finding, now time.Duration) bool {
	w := f.Workers
	m := matters{outcome: f.Outcome, generation: w.Generation, main: w.Main.State, serving: w.Serving,
		chain: w.Chain, none: w.NoneLooks >= 2, local: w.Local}
	urgent := f.Suspicious && (m != c.sent || !c.alarmed || now-c.sentAt >= repeatUrgent) || c.alarmed && !f.Suspicious
	c.alarmed = f.Suspicious
	if urgent {
		c.sent, c.sentAt = m, now
	}
	return urgent
}
