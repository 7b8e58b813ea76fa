// Package portcheck is the port kind: it turns the host observer's snapshots
// into facts about one declared listener. It opens no process file itself and
// proves nothing: what the facts mean is decided by the judge.
package portcheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

// Config says which listener of which of the observer's targets to look at.
// The target must declare it.
type Config struct {
	Target   string
	Listener netip.AddrPort
	// Path is the listener's unix socket, or "@name" in the abstract namespace,
	// instead of Listener.
	Path string
}

// Deps are the live things around a check. The zero value makes connections of
// its own, in our network namespace.
type Deps struct {
	// Pool holds the connections that all checks of this process share; nil is one
	// of its own.
	Pool *local.Pool
	// Local says how to connect to the target.
	Local local.Deps
}

const (
	// repeat is how often a finding leaves at once, and our own connection is
	// made anew, while the listener stays absent; chosen: a quarter of the
	// second in which a page is promised.
	repeat = 250 * time.Millisecond
	// repeatCalm is how often a finding leaves at once while somebody listens and
	// nothing changes, and lookEvery how often our own connection is made then;
	// chosen: no rule about a waiting queue decides in less than 3 s.
	repeatCalm = 5 * time.Second
	lookEvery  = time.Second
	// queueDumps is for how many dumps connections must have waited before we
	// connect ourselves (JUDGING section 3, P5: 3 looks).
	queueDumps = 3
	// unboundDumps and foreignLooks are how many looks a proof wants (JUDGING
	// section 3, P2 and P7).
	unboundDumps = 3
	foreignLooks = 2
)

// Check looks at one listener. Make it with New; it is for one schedule, which
// never overlaps its looks, but is safe if they do.
type Check struct {
	cfg    Config
	source inside.Source
	deps   Deps
	now    func() time.Duration

	mu      sync.Mutex // guards the fields below
	own     inside.Own
	queue   inside.Queue
	stop    inside.Stop
	closed  bool
	shared  bool    // the pool is others' too, who close it
	absent  bool    // at the last look
	holder  host.ID // the main that held the listener itself, last
	sent    matters
	sentAt  time.Duration
	alarmed bool
}

// New makes the check.
func New(cfg Config, source inside.Source, deps Deps) *Check {
	c := &Check{cfg: cfg, source: source, deps: deps, now: host.BootTime}
	c.shared = c.deps.Pool != nil
	if !c.shared {
		c.deps.Pool = &local.Pool{}
	}
	c.own.Looker = c.deps.Pool.Looker(cfg.Target, cfg.listener(), deps.Local)
	return c
}

func (c Config) listener() local.Listener { return local.Listener{Addr: c.Listener, Path: c.Path} }

// String names the listener as facts do.
func (c Config) String() string { return name(c.Listener, c.Path) }

func name(addr netip.AddrPort, path string) string {
	if path != "" {
		return "unix " + path
	}
	return "tcp " + addr.String()
}

// Close ends our own connection, if one is in flight and nobody shares it, and
// waits for it. It returns nil. Looks after it make none.
func (c *Check) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.shared {
		return nil // others look through it
	}
	c.own.Looker.Close()
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
	snap, blind, ok := inside.Fresh(ctx, c.source, c.cfg.Target, inside.Listeners, now)
	if !ok {
		return blind
	}
	l, ok := find(&snap, c.cfg)
	if !ok {
		return checks.BlindFinding(checks.ReasonMainUnknown, fmt.Sprintf("target %s does not declare %s", c.cfg.Target, c.cfg))
	}
	facts := Facts(&l, snap.Main.Status == host.MainAlive, now)
	if snap.FDsUnknown != "" && facts.OwnersUnknown == "" && len(facts.Owners) == 0 {
		facts.OwnersUnknown = snap.FDsUnknown
	}
	if slices.ContainsFunc(l.Owners, func(o host.Owner) bool { return o.Role == checks.RoleMain }) {
		c.holder = snap.Main.Process.ID
	}
	facts.MainHeld = c.holder != host.ID{} && c.holder == snap.Main.Process.ID
	c.queue.Observe(&l, snap.DumpAt)
	facts.QueueDumps, facts.QueueFor, facts.FullDumps = c.queue.Dumps(), c.queue.For(), c.queue.Full()
	facts.Group = c.queue.Group(&l)
	if snap.Trouble == (host.Trouble{}) {
		c.stop.Observe(&snap)
	}
	facts.StoppingFor, facts.Stopping = c.stop.For(now)
	facts.Host = inside.Host(&snap.Host, snap.Cgroup)
	c.lookLocally(&snap, &l, facts, now)
	f := Conclude(facts)
	f.Suspicious = !l.Listening || facts.ForeignLooks > 0 || facts.FullDumps > 0 || facts.LocalFails > 0
	f.Urgent = c.urgent(&f, now)
	return f
}

// lookLocally makes our own connection while the listener is absent or its queue
// does not drain, off our path.
func (c *Check) lookLocally(snap *host.Snapshot, l *host.Listener, facts *checks.ListenerFacts, now time.Duration) {
	ask := local.Ask{Every: lookEvery}
	if !l.Listening {
		ask.Every = repeat
	}
	if l.Listening == c.absent { // another question than before
		c.own.Rest()
	}
	c.absent = !l.Listening
	// Once begun it goes on until all is well: our own connection moves the queue.
	waits := facts.QueueDumps >= queueDumps || facts.FullDumps > 0 || c.own.Needed() && (facts.Queue > 0 || c.own.Failing())
	if c.closed || l.Listening && !waits {
		c.own.Rest()
		return
	}
	a, _ := c.own.Look(time.Now(), ask, l, snap.DumpAt, now)
	facts.Local, facts.LocalFails, facts.LocalFor = a.Look, a.Fails, a.For
	if a.Peer > 0 && len(facts.Owners) == 0 && facts.OwnersUnknown != "" {
		facts.OwnersUnknown += fmt.Sprintf("; process %d began to listen", a.Peer)
	}
}

func find(s *host.Snapshot, c Config) (host.Listener, bool) {
	if c.Path == "" {
		return s.Listener(c.Listener)
	}
	for _, l := range s.Listeners {
		if l.Path == c.Path {
			return l, true
		}
	}
	return host.Listener{}, false
}

// matters is what makes a suspicious finding urgent when it changes.
type matters struct {
	listening bool
	absent    int // dumps without it: 0, 1, or the 3 that a proof wants
	held      bool
	mainAlive bool
	local     checks.LocalLook
	fails     int // up to the 3 that a proof wants
	full      bool
	foreign   int // up to the 2 that a proof wants
	stopping  bool
}

// urgent decides whether a finding leaves at once: what matters changed, it is
// time to say so again, or all is well again.
func (c *Check) urgent(f *checks.Finding, now time.Duration) bool {
	l := f.Listener
	m := matters{listening: l.Listening, absent: min(l.AbsentDumps, unboundDumps), held: l.Held, mainAlive: l.MainAlive, local: l.Local,
		fails: min(l.LocalFails, 3), full: l.FullDumps > 0, foreign: min(l.ForeignLooks, foreignLooks), stopping: l.Stopping}
	if m.absent == 2 {
		m.absent = 1
	}
	again := repeatCalm
	if !l.Listening {
		again, m.fails = repeat, 0 // refused for ever, and said four times a second anyway
	}
	urgent := f.Suspicious && (m != c.sent || !c.alarmed || now-c.sentAt >= again) || c.alarmed && !f.Suspicious
	c.alarmed = f.Suspicious
	if urgent {
		c.sent, c.sentAt = m, now
	}
	return urgent
}
