package correlate

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// The windows of the rules about k of n workers (JUDGING section 3).
const (
	spinSuspected = 15 * time.Second // P6: suspected, and decided if looks at it fail
	spinDecided   = 30 * time.Second // P6: decided
	belowHeld     = 10 * time.Second // P9: fewer than the minimum for 10 s
	muteLooks     = 3                // P8: 3 local looks ...
	muteSpan      = 3 * time.Second  // P8: ... over 3 s; P5: the default restart gap (section 4)
)

// workersOf is the n of "k of n": the workers expected, or those that live if
// they are more.
func workersOf(f *checks.WorkerFacts, k int) int { return max(f.Expected, f.LivingWorkers, k) }

// judgedByProcess reports whether processes tell at all who serves: of a
// generation that has served, and whose workers hold the listener.
func judgedByProcess(f *checks.WorkerFacts, b beside) bool {
	return !f.NoHolder && (b.served || f.EverServed)
}

// some is the proof about k of n workers while somebody goes on serving: well of
// them, unless a pool at rest calls others when it needs them.
func some(p Proof, f *checks.WorkerFacts, b beside, k, well int) Proof {
	n := workersOf(f, k)
	p.Verdict, p.Page = Degraded, b.looksFail
	if !atRest(f, b) || f.Serving > 0 {
		p.Page = p.Page || pages(min(n-k, well), n, f.Minimum)
	}
	return p
}

// partialLoop decides P1k: k of n slots loop, each through 3 occupants that died
// badly within 60 s, while others serve.
func partialLoop(f *checks.WorkerFacts, b beside) (Proof, bool) {
	k := f.LoopingSlots
	if k == 0 || f.Serving == 0 || !judgedByProcess(f, b) {
		return Proof{}, false
	}
	text := fmt.Sprintf("main %s, %d of %d worker slots crash-loop for %s", f.Main.State, k, workersOf(f, k), round(f.LoopingFor))
	if exits := exitsText(f.Exits); exits != "" {
		text += " (" + exits + ")"
	}
	return some(Proof{Rule: "P1k", Cause: CauseWorkersCrashLooping, Ago: f.LoopingFor, Text: text}, f, b, k, f.Serving), true
}

// someFrozen decides P3 of some: their state alone, in 2 looks, held for 5 s, for
// their siblings go on accepting.
func someFrozen(f *checks.WorkerFacts, b beside) (Proof, bool) {
	others := f.Serving > 0 || f.Local == checks.LocalAnswered || atRest(f, b)
	if f.Frozen == 0 || f.FrozenFor < fewHeld || !others || !judgedByProcess(f, b) {
		return Proof{}, false
	}
	p := Proof{Rule: "P3", Cause: CauseWorkersFrozen, Ago: f.FrozenFor, Text: fmt.Sprintf("main %s, ", f.Main.State) + frozenText(f)}
	return some(p, f, b, f.Frozen, f.Serving), true
}

// spinning decides P6: a thread runs, or waits for a CPU, all the time, without
// a system call that takes time, a voluntary switch or a change of its sockets.
// 30 s decide; the 15 s of a suspicion do if looks at the instance fail, ours or
// those from outside. A host starved by others doubles the 30 s, and never hides
// an instance whose looks fail.
func spinning(f *checks.WorkerFacts, b beside) (Proof, bool) {
	failing := b.looksFail || b.stuck || mute(f.Local, f.LocalFails)
	window := patient(spinDecided, f, b)
	if failing {
		window = spinSuspected
	}
	k := spinners(f, window)
	if k == 0 || !judgedByProcess(f, b) {
		return Proof{}, false
	}
	n := workersOf(f, k)
	text := fmt.Sprintf("main %s, %d of %d workers spinning without a system call for %s", f.Main.State, k, n, round(f.SpinningFor)) +
		pidsText(f, func(p *checks.Process) bool { return p.SpinFor >= window })
	p := some(Proof{Rule: "P6", Cause: CauseWorkersSpinning, Ago: f.SpinningFor, Text: text}, f, b, k, f.Serving-k)
	if b.looksPass && !failing && f.Minimum == 0 {
		p.Page = false // they compute for a long time, and customers are served
	}
	switch all := k >= f.LivingWorkers; {
	case all && failing:
		p.Verdict, p.Page = Down, true
		p.Text += ownText(f.Local)
	case all && f.Local == checks.LocalAnswered && f.Minimum == 0:
		p.Page = b.looksFail // they compute, and somebody answers all the same
		p.Text += ownText(f.Local)
	}
	return p, true
}

// spinners counts the workers that have spun for the window; main too where it
// serves by itself.
func spinners(f *checks.WorkerFacts, window time.Duration) int {
	k := 0
	for i := range f.Workers {
		k += one(f.Workers[i].Role == checks.RoleWorker && f.Workers[i].SpinFor >= window)
	}
	if f.MainServes && f.Main.SpinFor >= window {
		k++
	}
	switch {
	case window <= spinSuspected:
		return max(k, f.Spinning) // what Spinning counts
	case f.SpinningFor >= window:
		return max(k, 1)
	}
	return k
}

// exhausted decides P11: workers without a free descriptor take no connection,
// which is seen where ours is not answered, or one from outside. It is the root
// of P5 and P8.
func exhausted(f *checks.WorkerFacts, b beside) (Proof, bool) {
	k := f.FDsExhausted
	if k == 0 || !b.looksFail && !b.stuck && !mute(f.Local, f.LocalFails) || !b.served && !f.EverServed {
		return Proof{}, false
	}
	text := fmt.Sprintf("main %s, %d of %d workers have no free descriptor", f.Main.State, k, workersOf(f, k)) +
		pidsText(f, func(p *checks.Process) bool { return p.FDsExhausted }) + ownText(f.Local)
	p := Proof{Rule: "P11", Cause: CauseFDExhausted, Verdict: Degraded, Page: true, Ago: f.LocalFor, Text: text}
	if k >= f.LivingWorkers || b.stuck {
		p.Verdict = Down
	}
	return p, true
}

// unanswered decides P8, and P5 where no listener is looked at: workers are
// there, and 3 of our own connections over 3 s brought nothing back; twice of
// both while looks from outside pass, who have more patience.
func unanswered(f *checks.WorkerFacts, b beside) (Proof, bool) {
	looks := muteLooks
	if f.Serving > 0 && f.Frozen+f.Spinning > 0 { // each of ours may meet one of those
		looks = looksAgainst(stuckShare(f))
	}
	looks, span := patience(looks, b)
	if f.Serving == 0 || f.LocalFails < looks || f.LocalFor < span || !b.served && !f.EverServed {
		return Proof{}, false
	}
	p := Proof{Rule: "P8", Cause: CauseNoProgress, Verdict: Down, Page: true, Ago: f.LocalFor,
		Text: fmt.Sprintf("main %s, %d of %d workers look well, and %d of our own connections over %s were accepted and not answered",
			f.Main.State, f.Serving, workersOf(f, f.Serving), f.LocalFails, round(f.LocalFor))}
	switch {
	case f.Local == checks.LocalAccepted:
		return slow(p, b), true
	case f.Local == checks.LocalUnanswered && !b.listening:
		p.Rule, p.Cause = "P5", CauseAcceptQueueStuck
		p.Text = fmt.Sprintf("main %s, %d of %d workers look well, and none of our own %d connections over %s was accepted",
			f.Main.State, f.Serving, workersOf(f, f.Serving), f.LocalFails, round(f.LocalFor))
		return p, true
	}
	return Proof{}, false
}

// belowMinimum decides P9: fewer workers than declared for 10 s, where nothing
// sharper is proven. Below its own minimum pages.
func belowMinimum(f *checks.WorkerFacts) (Proof, bool) {
	if f.Minimum == 0 || f.Serving >= f.Minimum || f.BelowFor < belowHeld {
		return Proof{}, false
	}
	p := Proof{Rule: "P9", Cause: CauseWorkersBelowMinimum, Verdict: Degraded, Page: true, Ago: f.BelowFor,
		Text: fmt.Sprintf("main %s, %d workers serving for %s, %d is the declared minimum", f.Main.State, f.Serving, round(f.BelowFor), f.Minimum)}
	if f.Serving == 0 {
		p.Verdict = Down
	}
	return p, true
}
