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
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

// Config says which target of the observer to look at.
type Config struct {
	Target string
	// Minimum is the declared least number of serving workers; 0 if none is.
	Minimum int
	// OnDemand says that the pool may be at zero while nothing waits.
	OnDemand bool
}

// Deps are the live things around a check. The zero value makes connections of
// its own, in our network namespace.
type Deps struct {
	// Pool holds the connections that all checks of this process share; nil is one
	// of its own.
	Pool *local.Pool
	// Local says how to connect to the target.
	Local local.Deps
	// Status asks the server what it says of itself, within a few seconds; nil: it
	// is not asked. It is called every 5 s, and once when suspicion begins.
	Status func(context.Context) (Said, error)
}

const (
	// localAfter is how long nobody must have served before we connect
	// ourselves; chosen: longer than any proof that needs no connection.
	localAfter = time.Second
	// queueDumps is for how many dumps connections must have waited before we
	// connect ourselves (JUDGING section 3, P5: 3 looks).
	queueDumps = 3
	// calmEvery is how often we connect while somebody is stuck and others serve;
	// chosen: no rule about a part of the workers decides sooner.
	calmEvery = 5 * time.Second
	// doubted is how long we connect ourselves after somebody asked for a look: a
	// look from outside failed, and workers that sit and wait do not show that they
	// answer nobody. Chosen: the asks come 1, 2 and 4 s apart (JUDGING section 4).
	doubted = 10 * time.Second
	// tryFor is for how long we try to learn whether, and when, a listener answers
	// (JUDGING section 3, P10: the start deadline).
	tryFor = 60 * time.Second
	// muteAfter is when a main of which nothing can be told (no worker ever held
	// a listener, none is known to ask) is not suspicious any more; chosen: the
	// observer looks closely for as long.
	muteAfter = host.FastFor
	// exitLingers is how long an exit asks for a close look; the observer sweeps
	// fast for as long.
	exitLingers = 2 * time.Second
)

// Check looks at one instance. Make it with New; it is for one schedule, which
// never overlaps its looks, but is safe if they do.
type Check struct {
	cfg    Config
	source inside.Source
	deps   Deps
	now    func() time.Duration

	mu      sync.Mutex // guards the fields below
	tracker Tracker
	own     inside.Own
	asked   time.Duration // when a look was last asked for; 0 if none was
	nobody  bool          // our own connection is wanted because all, or main, are stopped
	trial   trial
	pool    *local.Pool
	closed  bool
	answer  Answer
	alarm   alarm
	asker   asker
}

// trial is our own connection made while all is well.
type trial struct {
	generation string
	since      time.Duration
	over       bool // it was taken
}

// New makes the check.
func New(cfg Config, source inside.Source, deps Deps) *Check {
	c := &Check{cfg: cfg, source: source, deps: deps, now: host.BootTime, pool: deps.Pool,
		tracker: Tracker{Minimum: cfg.Minimum, OnDemand: cfg.OnDemand}}
	if c.pool == nil {
		c.pool = &local.Pool{}
	}
	c.asker.ask = deps.Status
	return c
}

// Accepted counts the connections that the server says it took since its counters
// began, if it is asked, tells, and did so lately.
func (c *Check) Accepted() (connections uint64, known bool) { return c.asker.accepted(time.Now()) }

// Close ends our own connection, if one is in flight and nobody shares it, and a
// question to the server, and waits for both. It returns nil. Looks after it make
// none.
func (c *Check) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.asker.close()
	if c.deps.Pool == nil {
		return c.pool.Close()
	}
	return nil
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
	now := c.now()
	snap, blind, ok := inside.Fresh(ctx, c.source, c.cfg.Target, inside.Processes, now)
	switch {
	case !ok:
		return blind
	case snap.Main.Status == host.MainUnknown:
		return checks.BlindFinding(checks.ReasonMainUnknown, snap.Main.Why)
	}
	if checks.Asked(ctx) {
		c.asked = now
	}
	facts := c.tracker.Observe(snap, c.answer, now)
	if who := stranger(&snap); who != "" && facts.NoHolder && facts.Main.State != checks.ProcGone {
		return checks.BlindFinding(checks.ReasonMainUnknown, who)
	}
	listener, known := known(&snap)
	c.lookLocally(&snap, listener, known, &facts, now)
	f := Conclude(&facts, snap.Main.Why)
	exited := c.tracker.lastExit != 0 && now-c.tracker.lastExit < exitLingers
	mute := facts.NoHolder && !known && facts.NoneFor >= muteAfter
	f.Suspicious = facts.Serving == 0 && !mute || facts.Main.State == checks.ProcGone || exited || stuck(&facts)
	f.Urgent = c.alarm.urgent(&f, now)
	c.askServer(&f)
	return f
}

// askServer asks the server about itself, off our path, and adds what it said
// last: to the facts, and to the sentence of what is not as it should be.
func (c *Check) askServer(f *checks.Finding) {
	if c.closed {
		return
	}
	now := time.Now()
	c.asker.begin(now, f.Suspicious)
	f.Workers.Source = c.asker.sentence(now)
	if f.Workers.Source != "" && f.Outcome != checks.Pass {
		f.Detail += "; it says of itself: " + f.Workers.Source
	}
}

// stuck reports whether somebody who lives does not look as if he worked.
func stuck(f *checks.WorkerFacts) bool {
	return f.Main.State == checks.ProcStopped || stopped(f) > 0 || f.Spinning > 0 || f.LoopingSlots > 0 || f.FDsExhausted > 0 ||
		f.LocalFails > 0 || f.BelowFor > 0
}

// stopped counts the workers that are stopped now, seen twice or not.
func stopped(f *checks.WorkerFacts) (n int) {
	for i := range f.Workers {
		if p := &f.Workers[i]; p.Role == checks.RoleWorker && p.State == checks.ProcStopped {
			n++
		}
	}
	return n
}

// lookLocally makes our own connection while it may tell something, off our path.
func (c *Check) lookLocally(snap *host.Snapshot, l host.Listener, known bool, facts *checks.WorkerFacts, now time.Duration) {
	ask, want := c.ask(facts, now)
	if all := want && ask.Early; all != c.nobody {
		c.nobody = all
		c.own.Rest() // what a look says that some could still take is another thing
	}
	if !want || !known || c.closed {
		c.own.Rest()
		c.answer = Answer{}
		facts.Local, facts.LocalFails, facts.LocalFor = "", 0, 0
		return
	}
	if at := (local.Listener{Addr: l.Addr, Path: l.Path}); c.own.Looker == nil || c.own.Looker.Listener() != at {
		c.own = inside.Own{Looker: c.pool.Looker(c.cfg.Target, at, c.deps.Local)}
	}
	clock := time.Now()
	a, started := c.own.Look(clock, ask, &l, snap.DumpAt, now)
	if started && facts.LivingWorkers == 0 {
		c.own.Empty(clock)
	}
	c.answer = a
	if a.Look == checks.LocalAnswered || a.Look == checks.LocalAccepted {
		c.trial.over = true
	}
	facts.Local, facts.LocalFails, facts.LocalFor = a.Look, a.Fails, a.For
}

// ask says how our own connection is wanted now, if it is.
func (c *Check) ask(f *checks.WorkerFacts, now time.Duration) (ask local.Ask, want bool) {
	ask.Every = time.Second
	n := stopped(f)
	switch {
	case f.Main.State == checks.ProcGone || f.Main.Age < StartTime && n == 0:
		return ask, false
	case f.Main.State == checks.ProcStopped, n > 0 && n == f.LivingWorkers:
		ask.Early = true // all of them: known as soon as 300 ms allow
		return ask, true
	case f.FDsExhausted > 0, c.tracker.queue.Dumps() >= queueDumps:
		return ask, true
	case n > 0, f.Spinning > 0:
		ask.Every = calmEvery
		return ask, true
	case f.Serving == 0:
		return ask, f.NoneFor >= patience(f)
	case c.asked != 0 && now-c.asked < doubted, c.untried(f, now):
		return ask, true
	}
	return ask, c.own.Needed() && c.own.Failing()
}

// untried reports whether it is still to be learnt, once in a generation and while
// all is well, if our bytes are answered at all, and how soon after main began.
func (c *Check) untried(f *checks.WorkerFacts, now time.Duration) bool {
	if c.trial.generation != f.Generation {
		c.trial = trial{generation: f.Generation, since: now}
	}
	return !c.trial.over && now-c.trial.since < tryFor
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
