package workercheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Conclude turns facts into the outcome of one look: what was seen, not yet what
// it proves. why explains the state of main, if there is something to explain.
func Conclude(w *checks.WorkerFacts, why string) checks.Finding {
	f := checks.Finding{Workers: w}
	switch {
	case w.Main.State == checks.ProcGone:
		f.Outcome, f.Reason, f.Detail = checks.Fail, checks.ReasonMainGone, gone(w, why)
	case w.Serving == 0 && w.Stopping:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonStopping
		f.Detail = fmt.Sprintf("main %d is stopping, nobody serves any more", w.Main.PID)
	case w.Serving == 0:
		f.Outcome, f.Reason, f.Detail = nobody(w)
	case w.Main.State == checks.ProcStopped:
		// Nothing will be respawned, reloaded or reaped (JUDGING section 3, P12).
		f.Outcome, f.Reason = checks.Warn, checks.ReasonMainStuck
		f.Detail = fmt.Sprintf("main %d is %s; %s serve without it", w.Main.PID, halted(&w.Main), plural(w.Serving, "worker"))
	case stopped(w) > 0 || w.Spinning > 0 || w.LoopingSlots > 0 || w.FDsExhausted > 0:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonWorkersStuck
		f.Detail = fmt.Sprintf("%d of %s serve; %s", w.Serving, plural(w.Expected, "worker"), stuckText(w))
	case w.Stopping:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonStopping
		f.Detail = fmt.Sprintf("main %d is stopping; %s still serve", w.Main.PID, plural(w.Serving, "worker"))
	case w.Serving < w.Expected:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonFewerWorkers
		f.Detail = fmt.Sprintf("%d of %s serve", w.Serving, plural(w.Expected, "worker"))
	case w.MainServes && w.OnDemand:
		f.Outcome, f.Detail = checks.Pass, fmt.Sprintf("main %d forks on demand, nothing waits", w.Main.PID)
	case w.MainServes:
		f.Outcome, f.Detail = checks.Pass, fmt.Sprintf("main %d serves by itself", w.Main.PID)
	default:
		f.Outcome, f.Detail = checks.Pass, fmt.Sprintf("%s serve under main %d", plural(w.Serving, "worker"), w.Main.PID)
	}
	return f
}

func gone(w *checks.WorkerFacts, why string) string {
	text := "main process is gone"
	if w.MainExit != "" && w.MainExit != "unknown" {
		text += " (" + w.MainExit + ")"
	}
	if w.MainGaveUp {
		text += ", and systemd has given up starting it"
	}
	if why != "" {
		text += ": " + why
	}
	if w.Serving > 0 {
		text += fmt.Sprintf("; %s still serve", plural(w.Serving, "worker"))
	}
	return text
}

// nobody concludes where main is there and nobody serves.
func nobody(w *checks.WorkerFacts) (checks.Outcome, checks.Reason, string) {
	text := fmt.Sprintf("main %d is %s, ", w.Main.PID, halted(&w.Main))
	switch {
	case !w.EverServed:
		text += "no worker has served yet since we look"
		if w.NoHolder && w.Local == "" && w.NoneFor >= muteAfter {
			text += "; whether it serves by itself can only be told if its listener is declared"
		}
		return checks.Warn, checks.ReasonFewerWorkers, text
	case w.Frozen > 0 && w.Frozen == w.LivingWorkers:
		return checks.Fail, checks.ReasonWorkersStuck, text + stuckText(w)
	case w.Main.State == checks.ProcStopped && w.LivingWorkers == 0:
		return checks.Fail, checks.ReasonMainStuck, text + "nobody serves" + died(w)
	case w.Expected == 0 && w.LivingWorkers == 0:
		return checks.Fail, checks.ReasonNoServingWorker, text + "nobody serves" + died(w)
	}
	return checks.Fail, checks.ReasonNoServingWorker, text + fmt.Sprintf("0 of %s serve%s", plural(w.Expected, "worker"), died(w))
}

// halted is a process's state with who halted it.
func halted(p *checks.Process) string {
	switch {
	case p.State != checks.ProcStopped:
		return string(p.State)
	case p.CgroupFrozen:
		return "frozen by its control group"
	case p.Tracer != "":
		return "stopped by " + p.Tracer
	}
	return string(p.State)
}

// stuckText says who is stuck and how: "worker 12 stopped for 3s; 2 workers spin".
func stuckText(w *checks.WorkerFacts) string {
	var parts []string
	for i := range w.Workers {
		p := &w.Workers[i]
		switch {
		case p.Role != checks.RoleWorker:
		case p.State == checks.ProcStopped:
			parts = append(parts, fmt.Sprintf("worker %d is %s for %s", p.PID, halted(p), p.StoppedFor.Round(time.Millisecond)))
		case p.SpinFor >= spinSuspect:
			parts = append(parts, fmt.Sprintf("worker %d spins for %s", p.PID, p.SpinFor.Round(time.Second)))
		case p.FDsExhausted:
			parts = append(parts, fmt.Sprintf("worker %d has no free descriptor", p.PID))
		}
	}
	if len(parts) > namedAtMost {
		parts = append(parts[:namedAtMost], fmt.Sprintf("and %d more", len(parts)-namedAtMost))
	}
	if w.MainServes && w.Main.SpinFor >= spinSuspect {
		parts = append(parts, fmt.Sprintf("main spins for %s", w.Main.SpinFor.Round(time.Second)))
	}
	if w.LoopingSlots > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d worker slots have lost their last %d workers within %s", w.LoopingSlots, w.Expected, loopDeaths, loopWithin))
	}
	return strings.Join(parts, "; ")
}

// namedAtMost is how many workers a sentence names; chosen: what one can read.
const namedAtMost = 4

// died tells how replacements ended: "; 12 replacements died within 9ms
// (exit 13 x12)".
func died(w *checks.WorkerFacts) string {
	if w.Died == 0 {
		return ""
	}
	var ends []string
	for name, n := range w.Exits {
		ends = append(ends, fmt.Sprintf("%s x%d", name, n))
	}
	slices.Sort(ends)
	age := ""
	if w.DiedAge > 0 {
		age = fmt.Sprintf(" at an age of %s", w.DiedAge.Round(time.Millisecond))
	}
	return fmt.Sprintf("; %s died%s (%s)", plural(w.Died, "replacement"), age, strings.Join(ends, ", "))
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
