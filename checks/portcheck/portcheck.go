// Package portcheck is the port kind: it turns the host observer's snapshots
// into facts about one declared listener. It opens no process file itself and
// proves nothing: what the facts mean is decided by the judge.
package portcheck

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

// Config says which listener of which of the observer's targets to look at.
// The target must declare it.
type Config struct {
	Target   string
	Listener netip.AddrPort
}

// Source is where snapshots come from: the host observer.
type Source interface {
	Snapshot(target string) (host.Snapshot, bool)
}

const (
	// repeat is how often a finding leaves at once, and our own connection is
	// made anew, while the listener stays absent; chosen: a quarter of the
	// second in which a page is promised.
	repeat = 250 * time.Millisecond
	// staleAfter is when a dump is no news any more; chosen: 20 dumps, so that
	// a short pause of ours blinds nobody.
	staleAfter = 20 * host.DumpEvery
)

// Check looks at one listener. Make it with New; it is for one schedule, which
// never overlaps its looks, but is safe if they do.
type Check struct {
	cfg    Config
	source Source
	now    func() time.Duration

	mu      sync.Mutex // guards the fields below
	looker  local.Looker
	sent    matters
	sentAt  time.Duration
	alarmed bool
}

// New makes the check.
func New(cfg Config, source Source) *Check {
	return &Check{cfg: cfg, source: source, now: host.BootTime, looker: local.Looker{Addr: cfg.Listener, Every: repeat}}
}

// Close ends our own connection, if one is in flight, and waits for it. It
// returns nil. Looks after it make none.
func (c *Check) Close() error {
	c.looker.Close()
	return nil
}

// matters is what makes a suspicious finding urgent when it changes.
type matters struct {
	absent    int // dumps without it, up to the 3 that a proof wants
	held      bool
	mainAlive bool
	local     checks.LocalLook
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
	case snap.DumpTrouble != (host.Trouble{}):
		return checks.BlindFinding(snap.DumpTrouble.Reason, snap.DumpTrouble.Detail)
	case now-snap.DumpAt > staleAfter:
		return checks.BlindFinding(checks.ReasonOwnLimit, fmt.Sprintf("the host observer last listed sockets %s ago", (now-snap.DumpAt).Round(time.Second)))
	}
	l, ok := snap.Listener(c.cfg.Listener)
	if !ok {
		return checks.BlindFinding(checks.ReasonMainUnknown, fmt.Sprintf("target %s does not declare %s", c.cfg.Target, c.cfg.Listener))
	}
	facts := Facts(&l, snap.Main.Status == host.MainAlive)
	if snap.FDsUnknown != "" && facts.OwnersUnknown == "" && len(facts.Owners) == 0 {
		facts.OwnersUnknown = snap.FDsUnknown
	}
	if l.Listening {
		c.looker.Rest()
	} else {
		last, _ := c.looker.Look(time.Now())
		facts.Local = last.Look
	}
	f := Conclude(facts)
	f.Suspicious = !l.Listening
	f.Urgent = c.urgent(facts, now)
	return f
}

// urgent decides whether a finding leaves at once: what matters changed, it is
// time to say so again, or the listener is back.
func (c *Check) urgent(l *checks.ListenerFacts, now time.Duration) bool {
	m := matters{absent: min(l.AbsentDumps, 3), held: l.Held, mainAlive: l.MainAlive, local: l.Local}
	if m.absent == 2 {
		m.absent = 1
	}
	urgent := !l.Listening && (m != c.sent || !c.alarmed || now-c.sentAt >= repeat) || c.alarmed && l.Listening
	c.alarmed = !l.Listening
	if urgent {
		c.sent, c.sentAt = m, now
	}
	return urgent
}

// Facts are the observer's words in the vocabulary of checks.
func Facts(l *host.Listener, mainAlive bool) *checks.ListenerFacts {
	f := &checks.ListenerFacts{
		Listener: "tcp " + l.Addr.String(), Listening: l.Listening, Sockets: l.Sockets, OwnersUnknown: l.OwnersUnknown,
		Queue: l.Queue, Backlog: l.Backlog, EverListening: l.EverListening, AbsentDumps: l.AbsentDumps, AbsentFor: l.AbsentFor,
		Held: l.Held, MainAlive: mainAlive,
	}
	for _, o := range l.Owners {
		f.Owners = append(f.Owners, checks.Process{PID: o.PID, StartTicks: o.StartTicks, Comm: o.Comm, State: o.State,
			Role: o.Role, Age: o.Age, Listens: o.Listens})
	}
	return f
}

// Conclude turns facts into the outcome of one look.
func Conclude(l *checks.ListenerFacts) checks.Finding {
	f := checks.Finding{Outcome: checks.Pass, Listener: l}
	if !l.Listening {
		f.Outcome, f.Reason = checks.Fail, checks.ReasonNotListening
		f.Detail = "nobody listens on " + l.Listener
		if l.Held {
			f.Detail += ", though the service still holds the socket that did (shut down, not closed)"
		}
		return f
	}
	var who []string
	for _, o := range l.Owners {
		who = append(who, fmt.Sprintf("%s %s %d", o.Role, o.Comm, o.PID))
	}
	switch {
	case len(who) > 0:
		f.Detail = "held by " + strings.Join(who, ", ")
	case l.OwnersUnknown != "":
		f.Detail = "listening, owner unknown: " + l.OwnersUnknown
	default:
		f.Detail = "listening"
	}
	return f
}
