package correlate

import (
	"fmt"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// The windows of the rules about listeners (JUDGING section 3).
const (
	unboundDumps = 3                      // P2: no LISTEN in 3 dumps ...
	unboundSpan  = 150 * time.Millisecond // P2: ... over at least 150 ms
	unboundHold  = 3 * time.Second        // P2: descriptor closed instead of shut
	stuckDumps   = 3                      // P5: a queue above 0 that does not fall in 3 looks ...
	stuckSpan    = 3 * time.Second        // P5: ... chosen: the default restart gap; a paced master takes nobody for 1 to 2 s after one kill
	fullDumps    = 2                      // P5: above its backlog, seen twice ...
	fullLooks    = 2                      // P5: ... chosen: and our own connection failed twice, for a burst fills a short queue
	stuckTicket  = spinDecided + fewHeld  // P5 of some sockets, where nobody must get up: chosen, see someStuck
	stolenLooks  = 2                      // P7: seen twice
	rebindGrace  = 2 * time.Second        // P2: where workers that own the socket are being replaced ...
	rebindLong   = 10 * time.Second       // P2: ... 10 s for varnish, whose manager starts a child and binds anew
	slowestBind  = "varnishd"
	replacedLong = 2 * nobodyFloor // P5: chosen: past every window of the rules about workers
)

// listenerProofs appends all that the facts about one declared listener prove.
func listenerProofs(f *checks.ListenerFacts, b beside, out []Proof) []Proof {
	if p, ok := neverBound(f); ok {
		return append(out, because(p, nil, f.Host))
	}
	if !f.MainAlive || !f.EverListening { // main's absence, and its start, are judged by its workers
		return out
	}
	for _, rule := range [...]func(*checks.ListenerFacts, beside) (Proof, bool){unbound, stolen, queueStuck, noProgress} {
		if p, ok := rule(f, b); ok {
			out = append(out, because(p, nil, f.Host))
		}
	}
	return out
}

// neverBound decides P10 of one listener: it is declared, and main has not bound it
// by the start deadline. Nobody saw this main listen there, so that it may be a
// mistake in the declaration: a ticket.
func neverBound(f *checks.ListenerFacts) (Proof, bool) {
	if f.Listening || f.EverListening || !f.MainAlive || f.AbsentFor < startDeadline {
		return Proof{}, false
	}
	return Proof{Rule: "P10", Cause: CausePortUnbound, Verdict: Degraded, Ago: f.AbsentFor,
		Text: fmt.Sprintf("%s is declared, and has been bound by nobody for %s", f.Listener, round(f.AbsentFor))}, true
}

// unbound decides P2: no LISTEN in 3 dumps over 150 ms, loopback refused, and the
// socket is still held without listening. If the descriptor was closed: 3 s, and
// where workers own it and are being replaced their rules decide first. Where main
// held it, their churn is no cause of it, and the second sign of the same fault.
func unbound(f *checks.ListenerFacts, b beside) (Proof, bool) {
	if f.Listening {
		return Proof{}, false
	}
	p := Proof{Rule: "P2", Cause: CausePortUnbound, Verdict: Down, Page: true, Ago: f.AbsentFor, Text: f.Listener + " bound by nobody"}
	switch {
	case f.Held && f.AbsentDumps >= unboundDumps && f.AbsentFor >= unboundSpan && f.Local == checks.LocalRefused:
		p.Text += ": its socket is still open in the service's processes and no longer listens"
		return p, true
	case !f.Held && f.MainHeld && b.churn && f.AbsentDumps >= unboundDumps && f.AbsentFor >= unboundSpan:
		p.Text += ": main's own socket was closed, and its workers cannot live without it"
		return p, true
	case !f.Held && (f.MainHeld || !b.replacing && !b.rebinding) && f.AbsentFor >= unboundHold:
		p.Text += fmt.Sprintf(" for %s: its socket was closed", round(f.AbsentFor))
		return p, true
	}
	return Proof{}, false
}

// stolen decides P7: processes outside the service alone hold a socket here, seen
// twice. A ticket while every answer is right; a page on one wrong or failed
// answer, to our own connection or to a look that began since the stranger was
// first seen: of an intruder who takes half, a quorum is chance. That look counts
// as long as he stands, whatever came since, and whether or not it is still valid:
// he has not changed. All of the sockets: down if looks fail by quorum, or ours,
// or one while none has passed since; a page if nobody looks. Some of them (SO_REUSEPORT): degraded with the lost share.
func stolen(f *checks.ListenerFacts, b beside) (Proof, bool) {
	if f.ForeignLooks < stolenLooks || !f.Listening {
		return Proof{}, false
	}
	failing := b.looksFail || mute(f.Local, f.LocalFails)
	p := Proof{Rule: "P7", Cause: CausePortStolen, Verdict: Degraded, Page: failing || b.failedSince, Ago: f.ForeignFor}
	share := fmt.Sprintf("takes %.0f %% of its connections", 100*f.LostShare)
	if f.LostShare >= 1 {
		share = "takes all its connections"
		p.Page = p.Page || !b.looksPass
		if failing || b.failedSince && b.nonePassed {
			p.Verdict = Down
		}
	}
	p.Text = fmt.Sprintf("%s is held by %s for %s, which %s", f.Listener, strangers(f), round(f.ForeignFor), share) + ownText(f.Local)
	if b.failedSince {
		p.Text += "; a look from outside has failed since"
	}
	return p, true
}

// strangers names those that hold a listener and are none of the service's.
func strangers(f *checks.ListenerFacts) string {
	var who []string
	for _, o := range f.Owners {
		if o.Role == checks.RoleForeign {
			who = append(who, fmt.Sprintf("%s (pid %d)", o.Comm, o.PID))
		}
	}
	if len(who) == 0 {
		return "a process that is none of the service's"
	}
	return strings.Join(who, ", ") + ", none of the service's"
}

// queueStuck decides P5: connections wait, their number does not fall for 3 s,
// and our own is never accepted; or a queue is above its backlog and ours failed
// twice. Of several sockets (SO_REUSEPORT) each has its own queue, and ours is
// put into any of them: if some do not drain, those are counted instead. While workers are being replaced, the rules about them decide.
func queueStuck(f *checks.ListenerFacts, b beside) (Proof, bool) {
	if !f.Listening || b.replacing && f.QueueFor < replacedLong {
		return Proof{}, false
	}
	k, n, held := stuckSockets(f)
	if n > 1 && k < n {
		return someStuck(f, b, k, n, held)
	}
	waits := f.QueueDumps >= stuckDumps && f.QueueFor >= stuckSpan
	full := f.FullDumps >= fullDumps && f.LocalFails >= fullLooks && f.QueueDumps >= stuckDumps
	if f.Local != checks.LocalUnanswered || !waits && !full {
		return Proof{}, false
	}
	text := fmt.Sprintf("%s: %d connections wait (the limit is %d) and none was taken", f.Listener, f.Queue, f.Backlog)
	if f.QueueFor > 0 {
		text += " for " + round(f.QueueFor).String()
	}
	p := Proof{Rule: "P5", Cause: CauseAcceptQueueStuck, Verdict: Down, Page: true, Ago: max(f.QueueFor, f.LocalFor), Text: text + ownText(f.Local)}
	if !waits { // a burst
		p = slow(p, b)
	}
	return p, true
}

// someStuck is P5 of k of n sockets. A ticket waits for what can name its root,
// the worker that is frozen or spins (P3, P6): fd tables do not tell who reads
// which. While one is suspected it waits for the proof, at most the 60 s of a
// starved host; a page does not wait, and names him.
func someStuck(f *checks.ListenerFacts, b beside, k, n int, held time.Duration) (Proof, bool) {
	page := k > 0 && (b.looksFail || pages(n-k, n, 0))
	if k == 0 || held < fewHeld || !page && (held < stuckTicket || b.suspects != "") {
		return Proof{}, false
	}
	return Proof{Rule: "P5", Cause: CauseAcceptQueueStuck, Verdict: Degraded, Page: page, Ago: held,
		Text: fmt.Sprintf("%s: at %d of its %d sockets connections wait and none was taken for %s", f.Listener, k, n, round(held)) + b.suspects}, true
}

// queueWaits reports that the queue as a whole has not fallen for the window, or
// is full.
func queueWaits(f *checks.ListenerFacts) bool {
	return f.QueueDumps >= stuckDumps && f.QueueFor >= stuckSpan || f.FullDumps >= fullDumps
}

// stuckSockets counts, of n sockets of the service's own, those whose queue does
// not drain, and says for how long the first has not.
func stuckSockets(f *checks.ListenerFacts) (k, n int, held time.Duration) {
	n = f.Sockets
	for _, s := range f.Group {
		switch {
		case s.Foreign:
			n--
		case s.QueueDumps >= stuckDumps && s.QueueFor >= stuckSpan:
			k++
			held = max(held, s.QueueFor)
		}
	}
	return k, n, held
}

// stuckOf counts the sockets whose queue did not fall in 3 dumps, however short.
func stuckOf(f *checks.ListenerFacts) (k int) {
	for i := range f.Group {
		k += one(f.Group[i].QueueDumps >= stuckDumps)
	}
	return k
}

// noProgress decides P8 at one listener: 3 of our own connections over 3 s were
// accepted and brought nothing back.
func noProgress(f *checks.ListenerFacts, b beside) (Proof, bool) {
	looks, span := patience(muteLooks, b)
	if f.Local != checks.LocalAccepted || f.LocalFails < looks || f.LocalFor < span {
		return Proof{}, false
	}
	return slow(Proof{Rule: "P8", Cause: CauseNoProgress, Verdict: Down, Page: true, Ago: f.LocalFor,
		Text: fmt.Sprintf("%s: %d of our own connections over %s were accepted and not answered", f.Listener, f.LocalFails, round(f.LocalFor))}, b), true
}

// patience is how many of our own connections must bring nothing back, and over
// what time: twice of both while looks from outside pass, who wait longer.
func patience(looks int, b beside) (int, time.Duration) {
	if b.looksPass {
		return 2 * looks, 2 * muteSpan
	}
	return looks, muteSpan
}

// slow makes a ticket of what only our own connections see: while looks from
// outside pass the server is slow, not dead.
func slow(p Proof, b beside) Proof {
	if b.looksPass {
		p.Verdict, p.Page = Degraded, false
	}
	return p
}

// replaced reports whether workers own the listener and nobody serves: the rules
// about workers decide first, and are bounded.
func replaced(f *checks.WorkerFacts) bool {
	return f.Serving == 0 && !f.MainServes && !f.NoHolder && !f.OnDemand && f.Main.State != checks.ProcGone
}

// rebinding reports whether the youngest worker is younger than it needs to bind
// the socket anew that its predecessor closed.
func rebinding(f *checks.WorkerFacts, absent time.Duration) bool {
	if f.MainServes || f.NoHolder || absent >= rebindLong {
		return false
	}
	grace := rebindGrace
	if f.Main.Comm == slowestBind {
		grace = rebindLong
	}
	for i := range f.Workers {
		if w := &f.Workers[i]; w.Role == checks.RoleWorker && w.State == checks.ProcAlive && w.Age < grace {
			return true
		}
	}
	return false
}
