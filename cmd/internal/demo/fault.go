package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// fault is one thing that can happen to the lab, and what must follow.
type fault struct {
	name string
	what string // what is injected, for a person
	// inject and heal are commands to the lab. heal may be nil.
	inject, heal func(*lab.Lab) error

	verdict correlate.Verdict
	cause   correlate.Cause
	pages   int
}

// poisoned is the hostname of the outage of 27 August 2026: a trailing slash
// that the load balancer reads as the opening of a regular expression.
const poisoned = "example.com/"

// faults lists what the demo can inject. Later ones are appended.
func faults() []fault {
	return []fault{
		{
			name:    "crash-loop",
			what:    fmt.Sprintf("the control plane publishes the hostname %q; every worker that learns it hits an assertion and dies, main restarts it and replays the same state", poisoned),
			inject:  func(l *lab.Lab) error { return l.AddRoute(poisoned, "app-4711") },
			heal:    func(l *lab.Lab) error { return l.RemoveRoute(poisoned) },
			verdict: correlate.Down, cause: correlate.CauseWorkersCrashLooping, pages: 1,
		},
		{
			name:    "close-listener",
			what:    "shutdown(2) on every listening socket; descriptors stay open, main and workers stay alive",
			inject:  (*lab.Lab).ShutListeners,
			heal:    (*lab.Lab).Reopen,
			verdict: correlate.Down, cause: correlate.CausePortUnbound, pages: 1,
		},
		{
			name:    "kill-once",
			what:    "every worker is killed once; main replaces them, and the replacements live",
			inject:  (*lab.Lab).KillOnce,
			verdict: correlate.Up,
		},
		{
			name:    "healthy-reload",
			what:    "a graceful reload: new workers start, the old ones finish and exit",
			inject:  (*lab.Lab).Reload,
			verdict: correlate.Up,
		},
	}
}

// Faults lists the names of the faults, in order.
func Faults() []string {
	var names []string
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

func faultNamed(name string) (fault, error) {
	all := faults()
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, fmt.Errorf("unknown fault %q; there are: %s", name, strings.Join(Faults(), ", "))
	}
	return all[i], nil
}
