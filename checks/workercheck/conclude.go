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
	f := checks.Finding{Outcome: checks.Pass, Workers: w}
	switch {
	case w.Main.State == checks.ProcGone:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonMainGone
		f.Detail = "main process is gone"
		if why != "" {
			f.Detail += ": " + why
		}
		if w.Serving > 0 {
			f.Detail += fmt.Sprintf("; %s still serve", plural(w.Serving, "worker"))
		}
	case w.Serving == 0 && !w.EverServed:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonFewerWorkers
		f.Detail = fmt.Sprintf("main %d is %s, no worker has served yet since we look", w.Main.PID, w.Main.State)
		if w.NoHolder && w.Local == "" && w.NoneFor >= muteAfter {
			f.Detail += "; whether it serves by itself can only be told if its listener is declared"
		}
	case w.Serving == 0 && w.Expected == 0 && w.LivingWorkers == 0:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonNoServingWorker
		f.Detail = fmt.Sprintf("main %d is %s, nobody serves%s", w.Main.PID, w.Main.State, died(w))
	case w.Serving == 0:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonNoServingWorker
		f.Detail = fmt.Sprintf("main %d is %s, 0 of %s serve%s", w.Main.PID, w.Main.State, plural(w.Expected, "worker"), died(w))
	case w.Serving < w.Expected:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonFewerWorkers
		f.Detail = fmt.Sprintf("%d of %s serve", w.Serving, plural(w.Expected, "worker"))
	case w.Main.State == checks.ProcStopped:
		// Nothing will be respawned, reloaded or reaped (JUDGING section 3, P12).
		f.Outcome, f.Reason = checks.Warn, checks.ReasonFewerWorkers
		f.Detail = fmt.Sprintf("main %d is stopped; %s serve without it", w.Main.PID, plural(w.Serving, "worker"))
	case w.MainServes:
		f.Detail = fmt.Sprintf("main %d serves by itself", w.Main.PID)
	default:
		f.Detail = fmt.Sprintf("%s serve under main %d", plural(w.Serving, "worker"), w.Main.PID)
	}
	return f
}

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
