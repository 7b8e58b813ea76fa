// Package workercheck is the workers kind: it turns the host observer's
// snapshots of one instance into facts about its main process and workers. It
// opens no process file itself and proves nothing: what the facts mean is
// decided by the judge.
package workercheck

import (
	"context"
	"fmt"
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
	// muteAfter is when a main of which nothing can be told (no worker ever held
	// a listener, none is known to ask) is not suspicious any more; chosen: the
	// observer looks closely for as long.
	muteAfter = host.FastFor
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
	closed  bool
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

// Close ends our own connection, if one is in flight, and waits for it. It
// returns nil. Looks after it make none.
func (c *Check) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.looker != nil {
		c.looker.Close()
	}
	return nil
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
	if who := stranger(&snap); who != "" && facts.NoHolder && facts.Main.State != checks.ProcGone {
		return checks.BlindFinding(checks.ReasonMainUnknown, who)
	}
	listener, known := known(&snap)
	c.lookLocally(&snap, listener, known, &facts, now)
	f := Conclude(&facts, snap.Main.Why)
	exited := c.tracker.lastExit != 0 && now-c.tracker.lastExit < exitLingers
	mute := facts.NoHolder && !known && facts.NoneFor >= muteAfter
	f.Suspicious = facts.Serving == 0 && !mute || facts.Main.State == checks.ProcGone || exited
	f.Urgent = c.urgent(&f, now)
	return f
}

// lookLocally makes our own connection while nobody serves, off our path.
func (c *Check) lookLocally(snap *host.Snapshot, l host.Listener, known bool, facts *checks.WorkerFacts, now time.Duration) {
	main := &facts.Main
	if facts.Serving > 0 || facts.NoneFor < patience(facts) || main.State == checks.ProcGone || main.Age < StartTime || !known || c.closed {
		if c.looker != nil {
			c.looker.Rest()
		}
		c.local = Answer{}
		return
	}
	if c.looker == nil || c.looker.Addr != l.Addr {
		if c.looker != nil {
			c.looker.Close()
		}
		c.looker = &local.Looker{Addr: l.Addr, Every: time.Second}
	}
	clock := time.Now()
	last, started := c.looker.Look(clock)
	ended := now - clock.Sub(last.Ended)
	// Whether an unanswered connection was taken is in a dump after it.
	told := last.Look != checks.LocalUnanswered || !l.Listening || snap.DumpAt > ended
	if last.Look != "" && told && (c.local.Look == "" || !last.Began.Equal(c.began)) {
		c.began = last.Began
		c.local = Answer{Look: last.Look, Empty: c.empty, Began: now - clock.Sub(last.Began), Ended: ended}
		if last.Look == checks.LocalUnanswered && l.Listening && l.Queue == 0 {
			c.local.Look = checks.LocalAccepted
		}
	}
	if started {
		c.empty = facts.LivingWorkers == 0
	}
	facts.Local = c.local.Look
}

// patience is how long nobody must serve before we connect ourselves. At once
// where nothing but an answer tells: of a main that we know only since a moment,
// or that is stopped, and of workers that end soon and may do so in peace.
func patience(f *checks.WorkerFacts) time.Duration {
	if !f.EverServed || f.Main.State == checks.ProcStopped || f.Chain >= 2 {
		return 0
	}
	return localAfter
}

// known is a listener of the service: one that listens, else one that did.
func known(snap *host.Snapshot) (known host.Listener, ok bool) {
	for _, l := range snap.Listeners {
		if l.Listening {
			return l, true
		}
		if l.EverListening && !ok {
			known, ok = l, true
		}
	}
	return known, ok
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

// stranger says that the main we were told of has nothing to do with the declared
// listeners: somebody else holds every one of them. A stale pid file whose number
// was given to another process looks so; its children serve nobody.
func stranger(s *host.Snapshot) string {
	held := ""
	for _, l := range s.Listeners {
		if !l.Listening {
			continue
		}
		if l.OwnersUnknown != "" || len(l.Owners) == 0 {
			return ""
		}
		for _, o := range l.Owners {
			if o.Role != checks.RoleForeign {
				return ""
			}
		}
		o := l.Owners[0]
		held = fmt.Sprintf("process %d (%s) is said to be main, and %s is held by process %d (%s), none of its family: a stale pid file?",
			s.Main.Process.PID, s.Main.Process.Comm, l.Addr, o.PID, o.Comm)
	}
	return held
}
