package workercheck

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

const (
	// repeatUrgent is how often a finding leaves at once while nobody serves and
	// nothing changes; chosen: a quarter of the second in which a page is promised.
	repeatUrgent = 250 * time.Millisecond
	// repeatCalm is the same while somebody does serve; chosen: no rule about a
	// part of the workers decides in less than 5 s.
	repeatCalm = 5 * time.Second
)

// The moments at which a rule of JUDGING section 3 can first decide, so that the
// finding must not wait for its slot.
var (
	frozenAt   = []time.Duration{0, 5 * time.Second}                      // P3
	spinningAt = []time.Duration{15 * time.Second, 30 * time.Second}      // P6
	mainAt     = []time.Duration{0, 8 * time.Second}                      // P12: within 10 s of the fault, see correlate
	belowAt    = []time.Duration{10 * time.Second}                        // P9
	localAt    = []time.Duration{300 * time.Millisecond, 3 * time.Second} // P3, P8
)

// alarm decides which findings leave at once. The zero value is ready.
type alarm struct {
	sent   matters
	sentAt time.Duration
	on     bool
}

// matters is what makes a suspicious finding urgent when it changes.
type matters struct {
	outcome    checks.Outcome
	reason     checks.Reason
	generation string
	main       checks.ProcState
	serving    int
	chain      int
	none       bool // NoneLooks has reached 2
	local      checks.LocalLook
	fails      int // up to the 3 that a proof wants
	stopped    int
	frozen     int
	spinning   int
	looping    int
	fds        int
	deaths     int
	gaveUp     bool
	stopping   bool
	oom        bool
	// How many of the moments above have passed.
	frozenFor, spinningFor, mainFor, belowFor, localFor int
}

// urgent reports whether a finding leaves at once: what matters changed, it is
// time to say so again, or all is well again.
func (a *alarm) urgent(f *checks.Finding, now time.Duration) bool {
	w := f.Workers
	m := matters{outcome: f.Outcome, reason: f.Reason, generation: w.Generation, main: w.Main.State, serving: w.Serving,
		chain: w.Chain, none: w.NoneLooks >= 2, local: w.Local, fails: min(w.LocalFails, 3), stopped: stopped(w), frozen: w.Frozen,
		spinning: w.Spinning, looping: w.LoopingSlots, fds: w.FDsExhausted, deaths: w.MainDeaths, gaveUp: w.MainGaveUp,
		stopping: w.Stopping, oom: w.OOMKills > 0,
		frozenFor: passed(w.FrozenFor, frozenAt), spinningFor: passed(w.SpinningFor, spinningAt), mainFor: passed(w.Main.StoppedFor, mainAt),
		belowFor: passed(w.BelowFor, belowAt), localFor: passed(w.LocalFor, localAt)}
	repeat := repeatCalm
	if w.Serving == 0 || w.Main.State == checks.ProcGone {
		repeat = repeatUrgent
	}
	urgent := f.Suspicious && (m != a.sent || !a.on || now-a.sentAt >= repeat) || a.on && !f.Suspicious
	a.on = f.Suspicious
	if urgent {
		a.sent, a.sentAt = m, now
	}
	return urgent
}

// passed counts the moments that a duration has reached; 0 for none at all.
func passed(d time.Duration, moments []time.Duration) (n int) {
	for _, m := range moments {
		if d > 0 && d >= m {
			n++
		}
	}
	return n
}
