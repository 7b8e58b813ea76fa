// Package inside is what the inside kinds share: whether a snapshot may be
// judged by, and what it says of the machine, of a process, and of the intent to
// stop. It is pure: snapshots in, facts out. It proves nothing.
package inside

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// Source is where snapshots come from: the host observer.
type Source interface {
	Snapshot(target string) (host.Snapshot, bool)
}

// Part is the half of a snapshot that a kind reads: processes or listeners.
type Part struct {
	// Limit is when it is no news any more.
	Limit time.Duration
	// Of returns when it was read, and why it could not be.
	Of func(*host.Snapshot) (at time.Duration, trouble host.Trouble)
	// Verb says in the past tense what the observer does for it.
	Verb string
}

// Processes and Listeners are the parts. Limits: five sweeps; 20 dumps (chosen:
// a short pause of ours blinds nobody).
var (
	Processes = Part{5 * host.SweepEvery, func(s *host.Snapshot) (time.Duration, host.Trouble) { return s.At, s.Trouble }, "looked"}
	Listeners = Part{20 * host.DumpEvery, func(s *host.Snapshot) (time.Duration, host.Trouble) { return s.DumpAt, s.DumpTrouble }, "listed sockets"}
)

// Fresh returns a snapshot of which the part may be judged by at now. If there is
// none, ok is false and blind says why.
func Fresh(ctx context.Context, from Source, target string, part Part, now time.Duration) (snap host.Snapshot, blind checks.Finding, ok bool) {
	if ctx.Err() != nil {
		return snap, checks.BlindFinding(checks.ReasonShuttingDown, "shutting down"), false
	}
	snap, known := from.Snapshot(target)
	if !known {
		return snap, checks.BlindFinding(checks.ReasonMainUnknown, "the host observer has not looked yet"), false
	}
	at, trouble := part.Of(&snap)
	switch {
	case trouble != (host.Trouble{}):
		return snap, checks.BlindFinding(trouble.Reason, trouble.Detail), false
	case now-at > part.Limit:
		return snap, checks.BlindFinding(checks.ReasonOwnLimit, fmt.Sprintf("the host observer last %s %s ago", part.Verb, (now-at).Round(time.Second))), false
	}
	return snap, checks.Finding{}, true
}

const (
	// starvedPressure and starvedLate are from inhost.md section 3: PSI some
	// avg10 above 60 %, or our own sweep late by more than a second.
	starvedPressure = 0.6
	starvedLate     = time.Second
)

// Host says what the machine may have to do with what is seen of a main in the
// control group; nil while it has nothing to do with it.
func Host(s *host.HostState, cgroup string) *checks.HostFacts {
	if !starved(s) {
		return nil
	}
	return &checks.HostFacts{CPUPressure: s.CPUPressure, Late: s.Late, Starved: true, Burner: s.Burner,
		BurnerOurs: s.Burner != "" && related(s.Burner, cgroup)}
}

func starved(s *host.HostState) bool {
	return s.CPUPressure > starvedPressure || s.Late > starvedLate
}

// Youth is the age up to which a child may hold main's listener only because it
// was forked and has not closed it, or not run its program, yet. Both take
// milliseconds where there is a free CPU; chosen: 100 ms, and 1 s where there is
// none (seen: more than 100 ms at a load of 11 on 2 cores).
func Youth(s *host.HostState) time.Duration {
	if starved(s) {
		return time.Second
	}
	return 100 * time.Millisecond
}

// related reports whether one control group is the other, or above it. The root
// is above everything and says nothing, unless both are.
func related(a, b string) bool {
	a, b = strings.Trim(a, "/"), strings.Trim(b, "/")
	if a == "" || b == "" {
		return a == b
	}
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// Process is a process of a snapshot in the vocabulary of checks. What only a
// kind knows (Serving, CPU, SpinFor) is left out; CPU is unknown.
func Process(p *host.Process, role checks.Role, at time.Duration) checks.Process {
	out := checks.Process{PID: p.PID, StartTicks: p.StartTicks, Comm: p.Comm, State: p.State, Role: role, Age: p.Age, CPU: -1,
		Traced: p.Traced, CgroupFrozen: p.CgroupFrozen, FDsExhausted: p.FDLimit > 0 && p.NextFD >= p.FDLimit,
		Listens: p.Listens, FDsUnknown: p.FDsUnknown}
	if p.StoppedSince > 0 {
		out.StoppedFor = max(0, at-p.StoppedSince)
	}
	if p.Traced && p.Tracer > 0 {
		out.Tracer = strings.TrimSpace(fmt.Sprintf("%s %d", p.TracerComm, p.Tracer))
	}
	return out
}
