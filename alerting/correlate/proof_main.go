package correlate

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	mainLives  = 2               // P4: 2 abnormal exits of main, or 2 lives that ended without serving
	mainHeld   = 8 * time.Second // P12: main stopped for 10 s; chosen: seen up to one sweep (1 s) late, and decided up to one after the moment
	keptLives  = 8               // generations remembered that did not serve; chosen: the rule asks for two
	mainLooped = startDeadline   // P4 of one that never served: chosen, as P10 gives one start
)

// looping decides P4: two mains ended badly, one after the other, younger than a
// main needs to start serving; at once if whoever restarts it has given up. Of
// an instance that has never served, two failed starts are its first deploy: it
// is given the time of P10, unless nobody will try again.
func looping(f *checks.WorkerFacts, b beside) (Proof, bool) {
	gaveUp := f.MainGaveUp && f.Main.State == checks.ProcGone
	switch {
	case f.Serving > 0, !gaveUp && f.MainDeaths < mainLives:
		return Proof{}, false
	case !gaveUp && !b.served && !b.ever && !f.EverServed && f.MainLoopFor < mainLooped:
		return Proof{}, false
	}
	text := fmt.Sprintf("main process %d is gone", f.Main.PID)
	if f.MainDeaths > 0 {
		text = fmt.Sprintf("%d main %s died one after the other before they served, in %s", f.MainDeaths, plural(f.MainDeaths, "process"), round(f.MainLoopFor))
	}
	if f.MainExit != "" && f.MainExit != "unknown" {
		text += fmt.Sprintf(" (%s)", f.MainExit)
	}
	if gaveUp {
		text += "; whoever restarts it has given up"
	}
	return Proof{Rule: "P4", Cause: CauseMainCrashLooping, Verdict: Down, Page: true, Ago: max(f.MainLoopFor, f.MainGoneFor), Text: text}, true
}

// unsupervised decides P12 of a main that is stopped while its workers go on:
// nothing will be respawned, reloaded or reaped. Once seen so for 8 s, 10 s after the fault at most, it is a ticket; it
// pages as soon as a look fails. Where main itself accepts, or forks for each
// connection, our own connection brings nothing back at once: down.
func unsupervised(f *checks.WorkerFacts, b beside) (Proof, bool) {
	held := f.Main.StoppedFor
	dumb := mute(f.Local, f.LocalFails)
	if f.Main.State != checks.ProcStopped || f.Serving == 0 || f.MainServes || held < mainHeld && !(held >= secondLook && (b.looksFail || b.stuck || dumb)) {
		return Proof{}, false
	}
	p := Proof{Rule: "P12", Cause: CauseMainFrozen, Verdict: Degraded, Page: b.looksFail || b.stuck || dumb, Ago: held,
		Text: fmt.Sprintf("main process %d is stopped%s for %s; %d %s on, nothing will be respawned or reloaded",
			f.Main.PID, how(&f.Main), round(held), f.Serving, verb(f.Serving, "worker goes", "workers go"))}
	if dumb || b.stuck {
		p.Verdict = Down
		p.Text = fmt.Sprintf("main process %d is stopped%s for %s", f.Main.PID, how(&f.Main), round(held)) + ownText(f.Local)
	}
	return p, true
}

// mainDead decides on a main that is gone: a restart until the grace has passed
// or the outside fails too (JUDGING section 3, last paragraph); P12 if workers
// go on serving.
func mainDead(f *checks.WorkerFacts, looksFail bool, grace time.Duration) (Proof, bool) {
	if f.MainGoneFor < grace && !looksFail {
		return Proof{}, false
	}
	p := Proof{Rule: "P4", Cause: CauseMainDead, Verdict: Down, Page: true, Ago: f.MainGoneFor,
		Text: fmt.Sprintf("main process %d is gone%s for %s and no successor appeared", f.Main.PID, ended(f), round(f.MainGoneFor))}
	if f.Serving > 0 && !looksFail {
		p.Rule, p.Verdict, p.Page = "P12", Degraded, false
		p.Text = fmt.Sprintf("main process %d is gone%s for %s; %d %s on serving, nothing will be respawned or reloaded",
			f.Main.PID, ended(f), round(f.MainGoneFor), f.Serving, verb(f.Serving, "worker goes", "workers go"))
	}
	return p, true
}

// ended says how main ended, if that is known and was not asked for.
func ended(f *checks.WorkerFacts) string {
	if f.MainExit == "" || f.MainExit == "unknown" || f.MainExit == "exit 0" {
		return ""
	}
	return fmt.Sprintf(" (%s)", f.MainExit)
}

// mainLoops decides P4 by what the judge remembers, where the agent cannot tell
// how mains ended: two ended without serving, and nobody has served for longer
// than any window.
func (in *insight) mainLoops() (Proof, bool) {
	if in.lives < mainLives || in.badFor < nobodyFloor {
		return Proof{}, false
	}
	return Proof{Rule: "P4", Cause: CauseMainCrashLooping, Verdict: Down, Page: true, Ago: in.badFor,
		Text: fmt.Sprintf("%d main processes ended one after the other before they served; nobody has served for %s", in.lives, round(in.badFor))}, true
}
