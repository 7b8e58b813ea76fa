package correlate

import (
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// What each "because" of JUDGING section 6 can bring about. A kill for memory
// ends processes; too little CPU makes slow what should be quick; a configuration
// that was not loaded, or refused, ends or keeps back those that would serve.
var (
	killed  = []Cause{CauseMainDead, CauseMainCrashLooping, CauseNeverReady, CauseWorkersDead, CauseWorkersCrashLooping, CauseWorkersBelowMinimum}
	slowed  = []Cause{CauseNeverReady, CauseWorkersDead, CauseWorkersSpinning, CauseWorkersBelowMinimum, CauseAcceptQueueStuck, CauseNoProgress}
	staling = []Cause{CauseMainDead, CauseMainCrashLooping, CauseNeverReady, CauseWorkersDead, CauseWorkersCrashLooping, CauseWorkersBelowMinimum, CausePortUnbound}
)

// because adds to a proof what brought its cause about, as far as the facts tell:
// the surest first.
func because(p Proof, w *checks.WorkerFacts, host *checks.HostFacts) Proof {
	if w != nil {
		host = w.Host
	}
	switch {
	case w != nil && w.OOMKills > 0 && slices.Contains(killed, p.Cause):
		p.Because = CauseOOMKilled
		p.Text += fmt.Sprintf("; because %d of its processes %s killed for memory within a minute", w.OOMKills, verb(w.OOMKills, "was", "were"))
	case starved(host) && slices.Contains(slowed, p.Cause):
		p.Because = CauseHostStarved
		p.Text += "; because " + starvedText(host)
	case w != nil && w.StaleConfig != "" && w.StaleFor >= p.Ago && slices.Contains(staling, p.Cause): // what came after it did not cause it
		p.Because = CauseStaleGeneration
		p.Text += fmt.Sprintf("; because %s, changed %s ago, was not loaded or was refused", w.StaleConfig, round(w.StaleFor))
	}
	return p
}

// starved reports a host on which others burn the CPU that the instance asks
// for. What its own control group burns is no excuse, and nor is a burner that
// nobody knows: it may be the instance itself (JUDGING section 3, P6).
func starved(h *checks.HostFacts) bool {
	return h != nil && h.Starved && h.Burner != "" && !h.BurnerOurs
}

func starvedText(h *checks.HostFacts) string {
	return fmt.Sprintf("the host is short of CPU: %s burns most of it", h.Burner)
}

// The limits of an announced intent (JUDGING section 1).
const (
	drainLimit  = 120 * time.Second
	reloadLimit = 30 * time.Second
)

// intent is what the instance or its operator announced, and whether its limit
// has passed.
type intent struct {
	stopping, reloading bool
	overdue             bool
	age                 time.Duration
}

// intent is the announcement that stands: to stop above to reload.
func (in *insight) intent() (out intent) {
	stop := func(yes bool, age time.Duration) {
		if yes && (!out.stopping || age > out.age) {
			out = intent{stopping: true, overdue: age >= drainLimit, age: age}
		}
	}
	if w := in.workers; w != nil {
		stop(w.Stopping, w.StoppingFor)
	}
	for _, l := range in.listeners {
		stop(l.facts.Stopping, l.facts.StoppingFor)
	}
	for _, h := range in.heartbeats {
		stop(h.facts.Stopping, h.facts.IntentFor)
		if h.facts.Reloading && !out.stopping {
			out = intent{reloading: true, overdue: h.facts.IntentFor >= reloadLimit, age: h.facts.IntentFor}
		}
	}
	return out
}

// delays reports whether the intent holds back what the inside proves: within its
// limit, and as long as customers do not see the service fail.
func (t intent) delays(publicFails bool) bool {
	return (t.stopping || t.reloading) && !t.overdue && !publicFails
}

// ends are the causes that a stop brings about. Others, frozen workers say, may be
// why a stop does not end.
var ends = []Cause{CauseMainDead, CauseWorkersDead, CausePortUnbound, CauseWorkersBelowMinimum, CauseAcceptQueueStuck, CauseNoProgress, CauseHeartbeatMissed}

// explain makes an intent to stop the root of what it brings about: it was asked
// for, and outlasted its limit, or customers see it. Either pages.
func (t intent) explain(f finding) finding {
	if !t.stopping {
		return f
	}
	if !slices.Contains(ends, f.proof.Cause) {
		return f
	}
	f.page = true
	f.effects = append([]Cause{f.proof.Cause}, f.effects...)
	ago := max(f.proof.Ago, t.age)
	f.at = f.at.Add(f.proof.Ago - ago)
	f.proof = Proof{Rule: "intent", Cause: CauseStopped, Verdict: f.verdict, Page: true, Ago: ago,
		Text: fmt.Sprintf("it was asked to stop %s ago; %s", round(t.age), f.proof.Text)}
	return f
}
