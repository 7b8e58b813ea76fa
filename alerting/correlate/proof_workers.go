package correlate

import (
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// The windows of the rules about nobody serving (JUDGING section 3).
const (
	crashLoopChain   = 3                       // P1: at least 3 failed replacements ...
	crashLoopSpan    = 150 * time.Millisecond  // P1: ... over at least 150 ms, in which nobody served
	notReplacedFloor = 2500 * time.Millisecond // P1d, P1s: max(2.5 s, twice the learnt respawn time)
	strangerFor      = 3 * time.Second         // chosen: two local looks of 1 s each have ended since the agent's first sight, and a reserve
)

// workerProofs appends all that the facts about main and its workers prove: of
// main, of nobody serving, or of some who do not.
func workerProofs(f *checks.WorkerFacts, b beside, out []Proof) []Proof {
	if p, ok := looping(f, b); ok {
		return append(out, because(p, f, nil)) // it explains the rest
	}
	if f.Main.State == checks.ProcGone {
		return out
	}
	if f.Serving == 0 {
		if p, ok := nobodyServes(f, b); ok {
			return append(out, because(p, f, nil))
		}
	}
	for _, rule := range [...]func(*checks.WorkerFacts, beside) (Proof, bool){
		unsupervised, partialLoop, someFrozen, spinning, exhausted, unanswered,
	} {
		if p, ok := rule(f, b); ok {
			out = append(out, because(p, f, nil))
		}
	}
	if len(out) == 0 {
		if p, ok := belowMinimum(f); ok {
			out = append(out, because(p, f, nil))
		}
	}
	return out
}

// nobodyServes decides on a main that is there and workers of which none serves:
// P1, P1d, P1s, P3 of all of them, P10, and the bound past every window.
func nobodyServes(f *checks.WorkerFacts, b beside) (Proof, bool) {
	if f.NoneLooks < noneLooks {
		return Proof{}, false
	}
	dead := shut(f.Local)
	// sure: what an agent does not see, because it has just started or knows no
	// holder of a listener, may well be there. A lone server forks no worker at
	// all. It needs the word of the server itself, or rather its silence.
	sure := dead && (f.NoneFor >= strangerFor || f.Main.State == checks.ProcStopped)
	loop := f.Chain > 0 && (!peaceful(f.Exits) || dead)
	window := patient(max(notReplacedFloor, 2*f.Respawn), f, b)
	rest := atRest(f, b)
	switch {
	case f.NoHolder && !dead:
		return Proof{}, false
	case !b.served && !f.EverServed:
		return neverReady(f, sure)
	case loop && f.Chain >= crashLoopChain && min(f.ChainFor, f.NoneFor) >= crashLoopSpan && (!rest || f.NoBirthFor < window):
		return noneProof("P1", CauseWorkersCrashLooping, f), true
	case (f.NoHolder || !f.EverServed) && !sure:
		return Proof{}, false
	case allFrozen(f, b):
		return frozenProof(f), true
	case f.LivingWorkers == 0 && f.Main.State == checks.ProcStopped:
		return noneProof("P1d", CauseMainFrozen, f), true
	case rest:
		return Proof{}, false
	case f.LivingWorkers == 0 && !f.MainServes && f.NoBirthFor >= window:
		return noneProof("P1d", CauseWorkersDead, f), true
	case loop && f.NoneFor >= window && (f.Chain >= 2 || mute(f.Local, f.LocalFails)):
		return noneProof("P1s", CauseWorkersCrashLooping, f), true
	case f.NoneFor >= patient(max(nobodyFloor, 2*f.Respawn), f, b) && !renewed(f):
		return noneProof("floor", nobodyCause(f), f), true
	}
	return Proof{}, false
}

// atRest reports an on-demand pool for which nothing waits: that nobody serves
// is then as it should be, as long as main can call somebody.
func atRest(f *checks.WorkerFacts, b beside) bool {
	return f.OnDemand && f.Main.State == checks.ProcAlive && !mute(f.Local, f.LocalFails) && !b.waiting
}

// patient doubles a window that rests on time alone while others burn the CPU
// that the instance needs (P6, starvation); never where looks at it fail.
func patient(window time.Duration, f *checks.WorkerFacts, b beside) time.Duration {
	if starved(f.Host) && !b.looksFail && !mute(f.Local, f.LocalFails) {
		return 2 * window
	}
	return window
}

func neverReady(f *checks.WorkerFacts, sure bool) (Proof, bool) {
	if f.Main.Age < startDeadline || !sure {
		return Proof{}, false
	}
	return Proof{Rule: "P10", Cause: CauseNeverReady, Verdict: Down, Page: true, Ago: min(f.NoneFor, f.Main.Age-startDeadline),
		Text: fmt.Sprintf("main %s for %s and no worker has served yet", f.Main.State, round(f.Main.Age)) + ownText(f.Local)}, true
}

// allFrozen decides P3 of every worker: all that live are stopped, in 2 looks
// 100 ms apart, and our own connection brought nothing back. Where there is none,
// or it could not be made, the state alone decides once it has held for 5 s, but
// not of a pool that calls others when it needs them.
func allFrozen(f *checks.WorkerFacts, b beside) bool {
	if f.Frozen == 0 || f.Frozen < f.LivingWorkers {
		return false
	}
	held := f.FrozenFor >= fewHeld && f.Local != checks.LocalAnswered && !atRest(f, b)
	return mute(f.Local, f.LocalFails) || held
}

func frozenProof(f *checks.WorkerFacts) Proof {
	p := Proof{Rule: "P3", Cause: CauseWorkersFrozen, Verdict: Down, Page: true, Ago: f.FrozenFor,
		Text: fmt.Sprintf("main %s, ", f.Main.State) + frozenText(f) + ownText(f.Local)}
	if f.Main.State == checks.ProcStopped { // main above its workers (section 6)
		p.Cause = CauseMainFrozen
	}
	return p
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
	case f.Died > 0 || f.LoopingSlots > 0:
		return CauseWorkersCrashLooping
	case f.MainServes: // there are no workers that could be dead
		return CausePortUnbound
	default:
		return CauseWorkersDead
	}
}

func noneProof(rule string, cause Cause, f *checks.WorkerFacts) Proof {
	return Proof{Rule: rule, Cause: cause, Verdict: Down, Page: true, Ago: f.NoneFor, Text: workersText(f)}
}
