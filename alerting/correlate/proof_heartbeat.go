package correlate

import (
	"fmt"
	"strings"

	"github.com/crosscheck-project/crosscheck/checks"
)

// ruleHeartbeat decides on a workload's own word; it has no number in JUDGING
// section 3.
const ruleHeartbeat = "heartbeat"

// silent decides on a workload that tells us by itself that it lives. Where its
// workers are declared one by one it is k of n dead workers. Down if nothing else
// tells of the instance, degraded beside what does. One that never spoke is a
// ticket: it may have been declared before it was built.
func silent(f *checks.HeartbeatFacts, alone bool) (Proof, bool) {
	limit := f.Every + f.Grace
	p := Proof{Rule: ruleHeartbeat, Cause: CauseHeartbeatMissed, Verdict: Degraded, Page: true}
	switch k := len(f.Missed); {
	case f.Last < 0:
		if f.Waiting < max(limit, startDeadline) {
			return Proof{}, false
		}
		return Proof{Rule: "P10", Cause: CauseNeverReady, Verdict: Degraded, Ago: f.Waiting - max(limit, startDeadline),
			Text: fmt.Sprintf("no heartbeat has come in the %s since we wait for the first", round(f.Waiting))}, true
	case f.Expected > 0 && k > 0:
		n := max(f.Expected, k)
		p.Cause, p.Page = CauseWorkersDead, pages(n-k, n, 0)
		p.Ago = max(0, f.MissedFor-limit)
		p.Text = fmt.Sprintf("%d of %d workers give no sign of life for %s: %s", k, n, round(max(f.MissedFor, limit)), few(f.Missed))
		if k == n && alone {
			p.Verdict = Down
		}
	case f.Triggered:
		p.Text = fmt.Sprintf("it asks to be taken for dead (WATCHDOG=trigger), %s after its last heartbeat", round(f.Last))
		if alone {
			p.Verdict = Down
		}
	case f.Expected == 0 && f.Last > limit:
		p.Ago = f.Last - limit
		p.Text = fmt.Sprintf("no heartbeat for %s; one is due every %s, with %s of grace", round(f.Last), f.Every, f.Grace)
		if alone {
			p.Verdict = Down
		}
	default:
		return Proof{}, false
	}
	if f.Status != "" {
		p.Text += fmt.Sprintf("; its last word was %q", f.Status)
	}
	return p, true
}

// beats reports that somebody gave a sign of life in time.
func beats(f *checks.HeartbeatFacts) bool {
	return f.Last >= 0 && f.Last <= f.Every+f.Grace && !f.Triggered
}

// shown is how many names or pids a sentence lists (chosen: what a line holds).
const shown = 4

func few(names []string) string {
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
