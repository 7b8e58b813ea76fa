package correlate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// sentence is the page's sentence: what is broken, the proof, who sees it
// (JUDGING section 7). The time stands beside it wherever it is shown.
func sentence(s *State, texts []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.Scope, strings.ToUpper(s.Verdict.String()))
	if len(texts) > 0 {
		b.WriteString(": " + strings.Join(texts, "; "))
	}
	if (s.Rule == ruleQuorum || s.Rule == ruleAlone) && s.Tally.Failing == 0 && s.Tally.Voting > 0 {
		fmt.Fprintf(&b, ". All %d places are served again; closing wants two good looks from each", s.Tally.Voting)
		return b.String()
	}
	b.WriteString(". " + s.Tally.text(s.Verdict))
	return b.String()
}

// workersText says what the agent saw of main and its workers.
func workersText(f *checks.WorkerFacts) string {
	var b strings.Builder
	if f.Expected > 0 {
		fmt.Fprintf(&b, "main %s, %d of %d workers serving", f.Main.State, f.Serving, f.Expected)
	} else { // broken before its worker count was known
		fmt.Fprintf(&b, "main %s, no worker serving", f.Main.State)
	}
	if f.Died > 0 {
		fmt.Fprintf(&b, "; %d %s died", f.Died, plural(f.Died, "replacement"))
		if f.DiedAge > 0 {
			fmt.Fprintf(&b, " at an age of %s", round(f.DiedAge))
		}
		if exits := exitsText(f.Exits); exits != "" {
			fmt.Fprintf(&b, " (%s)", exits)
		}
	}
	if f.LivingWorkers == 0 && f.Died == 0 {
		if f.NoHolder {
			b.WriteString(ownText(f.Local))
		} else {
			fmt.Fprintf(&b, "; nothing was respawned for %s", round(f.NoBirthFor))
		}
	}
	return b.String()
}

// ownText says what became of our own connection, where that is part of the
// proof.
func ownText(l checks.LocalLook) string {
	switch l {
	case "":
		return ""
	case checks.LocalUnanswered:
		return "; our own connection was not accepted"
	case checks.LocalAccepted:
		return "; our own connection was accepted and not answered"
	}
	return fmt.Sprintf("; our own connection was %s", l)
}

// frozenText says which workers are stopped, how and for how long.
func frozenText(f *checks.WorkerFacts) string {
	var first *checks.Process
	for i := range f.Workers {
		if p := &f.Workers[i]; isFrozen(p) && (first == nil || p.StoppedFor > first.StoppedFor) {
			first = p
		}
	}
	by := ""
	if first != nil {
		by = how(first)
	}
	n := workersOf(f, f.Frozen)
	return fmt.Sprintf("%d of %d %s stopped%s for %s", f.Frozen, n, plural(n, "worker"), by, round(f.FrozenFor)) + pidsText(f, isFrozen)
}

func isFrozen(p *checks.Process) bool {
	return p.State == checks.ProcStopped && p.Role == checks.RoleWorker
}

// how says what stopped a process.
func how(p *checks.Process) string {
	switch {
	case p.Tracer != "":
		return fmt.Sprintf(" (traced by %s)", p.Tracer)
	case p.Traced:
		return " (traced)"
	case p.CgroupFrozen:
		return " (frozen control group)"
	}
	return " (SIGSTOP)"
}

// pidsText lists the pids of the workers that is holds of.
func pidsText(f *checks.WorkerFacts, is func(*checks.Process) bool) string {
	var pids []string
	for i := range f.Workers {
		if is(&f.Workers[i]) {
			pids = append(pids, strconv.Itoa(f.Workers[i].PID))
		}
	}
	if len(pids) == 0 {
		return ""
	}
	return ", " + plural(len(pids), "pid") + " " + few(pids)
}

// suspectsText names the workers that are stopped, or have spun for as long as a
// frozen one must be held; empty if there are none.
func suspectsText(f *checks.WorkerFacts) string {
	pids := pidsText(f, func(p *checks.Process) bool {
		return p.Role == checks.RoleWorker && (p.State == checks.ProcStopped || p.SpinFor >= fewHeld)
	})
	if pids == "" {
		return ""
	}
	return "; suspected: " + strings.TrimPrefix(pids, ", ")
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// exitsText lists how processes ended, the most frequent first.
func exitsText(exits map[string]int) string {
	names := make([]string, 0, len(exits))
	for name := range exits {
		if name != "unknown" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := exits[b] - exits[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return strings.Join(names, ", ")
}

func plural(n int, word string) string {
	switch {
	case n == 1:
		return word
	case strings.HasSuffix(word, "s"):
		return word + "es"
	}
	return word + "s"
}

// round shortens a duration to what a person reads at a glance.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}
