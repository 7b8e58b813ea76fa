package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// lateLocked reports whether one that last beat then, or never did, is late.
// Silence while we slept ourselves proves nothing.
func (c *Check) lateLocked(last, now time.Time) bool { return now.Sub(c.baseLocked(last)) > c.limit() }

// baseLocked is from when on silence counts.
func (c *Check) baseLocked(last time.Time) time.Time {
	return later(later(c.since, c.resumed), last)
}

// excusedLocked reports whether one that is silent is not late yet: we have not
// waited long enough, since the start or since we slept.
func (c *Check) excusedLocked(last, now time.Time) bool {
	return (last.IsZero() || now.Sub(last) > c.limit()) && !c.lateLocked(last, now)
}

func (c *Check) silentLocked(v voice, now time.Time) bool {
	return v.triggered || c.lateLocked(v.last, now)
}

// inTimeLocked reports whether it has beaten, and is expected no sooner than now.
func (c *Check) inTimeLocked(v voice, now time.Time) bool {
	return !c.silentLocked(v, now) && !c.excusedLocked(v.last, now)
}

// advanceLocked takes notice of a deadline that has passed. One that we notice
// late tells that we were stalled: waiting begins anew.
func (c *Check) advanceLocked(now time.Time) {
	if c.due.IsZero() || now.Before(c.due) {
		return
	}
	if behind := now.Sub(c.due); behind > stalledAfter {
		c.resumed = now
		c.log.Warn("stalled ourselves: what was sent meanwhile may be lost, so the wait begins anew", "check", c.cfg.ID, "for", behind.Round(time.Millisecond))
	}
	c.rearmLocked(now)
}

// rearmLocked finds the next deadline.
func (c *Check) rearmLocked(now time.Time) {
	c.due = time.Time{}
	consider := func(last time.Time) {
		at := c.baseLocked(last).Add(c.limit() + time.Nanosecond)
		if at.After(now) && (c.due.IsZero() || at.Before(c.due)) {
			c.due = at
		}
	}
	consider(c.whole.last)
	for _, w := range c.workers {
		consider(w.last)
	}
	switch {
	case c.timer == nil:
	case c.due.IsZero():
		c.timer.Stop()
	default:
		c.timer.Reset(c.due.Sub(now))
	}
}

// matters is what makes a finding urgent when it changes.
type matters struct {
	outcome checks.Outcome
	reason  checks.Reason
	missed  string
}

// Look reports what is known now. It never waits.
func (c *Check) Look(ctx context.Context) checks.Finding {
	begin := time.Now()
	if ctx.Err() != nil {
		return checks.BlindFinding(checks.ReasonShuttingDown, "shutting down")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.advanceLocked(now)
	f := c.concludeLocked(now)
	f.Duration = time.Since(begin)
	return f
}

func (c *Check) concludeLocked(now time.Time) checks.Finding {
	facts, waiting := c.factsLocked(now)
	f := c.outcomeLocked(facts, waiting, now)
	if f.Outcome == checks.Blind {
		return f
	}
	f.Heartbeat = facts
	f.Suspicious = f.Reason == checks.ReasonHeartbeatMissed
	m := matters{f.Outcome, f.Reason, strings.Join(facts.Missed, " ")}
	uneasy := f.Reason != ""
	f.Urgent = m != c.sent && (uneasy || c.uneasy)
	c.sent, c.uneasy = m, uneasy
	return f
}

// factsLocked collects what is known. waiting says that somebody is silent, and
// excused.
func (c *Check) factsLocked(now time.Time) (f *checks.HeartbeatFacts, waiting bool) {
	f = &checks.HeartbeatFacts{
		Every: c.cfg.Every, Grace: c.cfg.Grace, Last: -1, Status: c.status,
		Stopping: c.intent.stopping, Reloading: c.intent.reloading,
		Expected: max(len(c.cfg.Workers), c.cfg.Count),
	}
	if c.whole.last.IsZero() {
		f.Waiting = now.Sub(c.since)
	} else {
		f.Last = now.Sub(c.whole.last)
	}
	f.Triggered = c.whole.triggered
	if f.Stopping || f.Reloading {
		f.IntentFor = now.Sub(c.intent.at)
	}
	if f.Expected == 0 {
		return f, c.excusedLocked(c.whole.last, now)
	}
	var late []string
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		switch w := c.workers[name]; {
		case c.silentLocked(*w, now):
			late = append(late, name)
		case c.excusedLocked(w.last, now):
			waiting = true
		default:
			f.Beating++
		}
	}
	if c.cfg.Count > 0 {
		f.Beating = min(f.Beating, f.Expected)
		waiting = f.Beating < f.Expected && c.excusedLocked(time.Time{}, now)
		// Those that others have replaced are missed by nobody.
		slices.SortStableFunc(late, func(a, b string) int { return c.workers[b].last.Compare(c.workers[a].last) })
		late = late[:min(len(late), f.Expected-f.Beating)]
		for !waiting && f.Beating+len(late) < f.Expected {
			late = append(late, "one never heard of")
		}
	}
	f.Missed = late
	for _, name := range late {
		last := c.since
		if w := c.workers[name]; w != nil && !w.last.IsZero() {
			last = w.last
		}
		f.MissedFor = max(f.MissedFor, now.Sub(last))
	}
	return f, waiting
}

// outcomeLocked turns facts into the outcome of one look.
func (c *Check) outcomeLocked(f *checks.HeartbeatFacts, waiting bool, now time.Time) checks.Finding {
	silent := c.silentLocked(c.whole, now)
	if f.Expected > 0 {
		silent = f.Triggered || f.Beating == 0 && !waiting
	}
	expects := fmt.Sprintf("a beat is expected every %s, with %s of grace", f.Every, f.Grace)
	heard := "nothing heard in the " + round(f.Waiting) + " since we wait"
	if f.Last >= 0 {
		heard = "last heard " + round(f.Last) + " ago"
	}
	switch {
	case c.broken != nil && (silent || waiting):
		reason := checks.ReasonOwnLimit
		if errors.Is(c.broken, fs.ErrPermission) {
			reason = checks.ReasonNoPermission
		}
		return checks.BlindFinding(reason, "cannot take heartbeats: "+c.broken.Error())
	case waiting && c.resumed.After(c.since) && !c.lateLocked(time.Time{}, now):
		return checks.BlindFinding(checks.ReasonOwnLimit, fmt.Sprintf("we were stalled ourselves until %s ago: what was sent meanwhile may be lost", round(now.Sub(c.resumed))))
	case f.Stopping:
		return checks.Finding{Outcome: checks.Warn, Reason: checks.ReasonStopping, Detail: fmt.Sprintf("announced %s ago that it stops, %s", round(f.IntentFor), heard)}
	case f.Triggered:
		return checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonHeartbeatMissed, Detail: "asks to be taken for dead (WATCHDOG=trigger)"}
	case silent && f.Expected > 0:
		return checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonHeartbeatMissed, Detail: fmt.Sprintf("all %d workers are silent, %s; %s", f.Expected, heard, expects)}
	case silent:
		return checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonHeartbeatMissed, Detail: heard + "; " + expects}
	case len(f.Missed) > 0:
		return checks.Finding{Outcome: checks.Warn, Reason: checks.ReasonHeartbeatMissed, Detail: fmt.Sprintf("%d of %d workers are silent%s; %s", len(f.Missed), f.Expected, named(f.Missed), expects)}
	case waiting:
		return checks.Finding{Outcome: checks.Warn, Detail: fmt.Sprintf("waiting for a first beat; %s", expects)}
	}
	if f.Status != "" {
		heard += ": " + f.Status
	}
	return checks.Finding{Outcome: checks.Pass, Detail: heard}
}

func named(workers []string) string {
	const most = 5 // a sentence, not a list
	if len(workers) == 0 {
		return ""
	}
	more := ""
	if len(workers) > most {
		more = fmt.Sprintf(" and %d more", len(workers)-most)
		workers = workers[:most]
	}
	return " (" + strings.Join(workers, ", ") + more + ")"
}

// round prints a duration as a person would.
func round(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
