package correlate

import (
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Proof is an inside proof that an instance is broken (JUDGING section 3).
type Proof struct {
	Rule  string
	Cause Cause
	// Ago is how long before the look the fault was first seen.
	Ago time.Duration
	// Text is the proof in words, the middle of the page's sentence.
	Text string
}

// The windows of JUDGING section 3.
const (
	crashLoopChain   = 3                       // P1: at least 3 failed replacements ...
	crashLoopSpan    = 150 * time.Millisecond  // P1: ... over at least 150 ms, in which nobody served
	noneLooks        = 2                       // every rule about workers: nobody serves in 2 looks
	notReplacedFloor = 2500 * time.Millisecond // P1d, P1s: max(2.5 s, twice the learnt respawn time)
	unboundDumps     = 3                       // P2: no LISTEN in 3 dumps ...
	unboundSpan      = 150 * time.Millisecond  // P2: ... over at least 150 ms
	unboundHold      = 3 * time.Second         // P2: descriptor closed instead of shut
	nobodyFloor      = 5 * time.Second         // section 1: past the windows, main alive and nobody serving is down
	startDeadline    = 60 * time.Second        // P10: not serving by then
	workerStart      = time.Second             // section 3, "Serving worker": until the start time is learnt
	strangerFor      = 3 * time.Second         // chosen: two local looks of 1 s each have ended since the agent's first sight, and a reserve
)

// ProveWorkers applies the rules about workers. served says that an instance of
// this generation has served, whoever saw it: only then can it be proven broken.
// It may be a guess: what this agent has not seen serve it proves by silence only.
// A main that is gone is the caller's to judge: it needs the restart grace.
func ProveWorkers(f *checks.WorkerFacts, served bool) (Proof, bool) {
	if f.Main.State == checks.ProcGone || f.Serving > 0 || f.NoneLooks < noneLooks {
		return Proof{}, false
	}
	unanswered := f.Local == checks.LocalUnanswered || f.Local == checks.LocalRefused
	// sure: what an agent does not see, because it has just started or knows no
	// holder of a listener, may well be there. A lone server forks no worker at
	// all. It needs the word of the server itself, or rather its silence.
	sure := unanswered && (f.NoneFor >= strangerFor || f.Main.State == checks.ProcStopped)
	loop := f.Chain > 0 && (!peaceful(f.Exits) || unanswered)
	window := max(notReplacedFloor, 2*f.Respawn)
	switch {
	case f.NoHolder && !unanswered:
		return Proof{}, false
	case !served && !f.EverServed:
		return neverReady(f, sure)
	case loop && f.Chain >= crashLoopChain && min(f.ChainFor, f.NoneFor) >= crashLoopSpan:
		return workersProof("P1", CauseWorkersCrashLooping, f), true
	case (f.NoHolder || !f.EverServed) && !sure:
		return Proof{}, false
	case f.LivingWorkers == 0 && f.Main.State == checks.ProcStopped:
		return workersProof("P1d", CauseMainFrozen, f), true
	case f.LivingWorkers == 0 && !f.MainServes && f.NoBirthFor >= window:
		return workersProof("P1d", CauseWorkersDead, f), true
	case loop && f.NoneFor >= window && (f.Chain >= 2 || unanswered || f.Local == checks.LocalAccepted):
		return workersProof("P1s", CauseWorkersCrashLooping, f), true
	case f.NoneFor >= max(nobodyFloor, 2*f.Respawn) && !renewed(f):
		return workersProof("floor", nobodyCause(f), f), true
	}
	return Proof{}, false
}

func neverReady(f *checks.WorkerFacts, sure bool) (Proof, bool) {
	if f.Main.Age < startDeadline || !sure {
		return Proof{}, false
	}
	return Proof{Rule: "P10", Cause: CauseNeverReady, Ago: min(f.NoneFor, f.Main.Age-startDeadline),
		Text: fmt.Sprintf("main alive for %s and no worker has served yet", round(f.Main.Age)) + localText(f)}, true
}

// peaceful reports whether all that died exited with code 0, known to have:
// they may be recycled (max_requests), however soon. Then only silence tells.
func peaceful(exits map[string]int) bool {
	_, clean := exits["exit 0"]
	return clean && len(exits) == 1
}

// renewed reports whether nobody died badly and yet somebody is there: our own
// connection is answered, or workers too young to count hold the listener, as
// when a server is reloaded every second.
func renewed(f *checks.WorkerFacts) bool {
	for name := range f.Exits {
		if name != "exit 0" && name != "unknown" {
			return false
		}
	}
	if f.Chain > 0 && !peaceful(f.Exits) {
		return false
	}
	young := func(p checks.Process) bool {
		return p.Role == checks.RoleWorker && p.State == checks.ProcAlive && p.Listens && p.Age < workerStart
	}
	return f.Local == checks.LocalAnswered || f.Local == "" && slices.ContainsFunc(f.Workers, young)
}

// nobodyCause names the cause when nobody serves for longer than any window and
// no sharper rule matched.
func nobodyCause(f *checks.WorkerFacts) Cause {
	for _, w := range f.Workers {
		if w.State == checks.ProcStopped {
			return CauseWorkersFrozen
		}
	}
	switch {
	case f.Died > 0:
		return CauseWorkersCrashLooping
	case f.MainServes: // there are no workers that could be dead
		return CausePortUnbound
	default:
		return CauseWorkersDead
	}
}

func workersProof(rule string, cause Cause, f *checks.WorkerFacts) Proof {
	return Proof{Rule: rule, Cause: cause, Ago: f.NoneFor, Text: workersText(f)}
}

// ProveListener applies P2 to one declared listener. replacing says that the
// workers own the socket and are being replaced, so that P1 decides.
func ProveListener(f *checks.ListenerFacts, replacing bool) (Proof, bool) {
	if f.Listening || !f.EverListening || !f.MainAlive {
		return Proof{}, false
	}
	text := fmt.Sprintf("%s bound by nobody", f.Listener)
	switch {
	case f.Held && f.AbsentDumps >= unboundDumps && f.AbsentFor >= unboundSpan && f.Local == checks.LocalRefused:
		return Proof{Rule: "P2", Cause: CausePortUnbound, Ago: f.AbsentFor,
			Text: text + ": its socket is still open in the service's processes and no longer listens"}, true
	case !f.Held && !replacing && f.AbsentFor >= unboundHold:
		return Proof{Rule: "P2", Cause: CausePortUnbound, Ago: f.AbsentFor,
			Text: fmt.Sprintf("%s for %s: its socket was closed", text, round(f.AbsentFor))}, true
	}
	return Proof{}, false
}
