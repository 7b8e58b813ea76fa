package correlate

import (
	"fmt"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// decideInstance is the table of one instance: a total function of what the
// inside shows, first match wins. ok is false for "keep": nothing is proven
// either way, or an intent delays what is, and what stood goes on standing.
func decideInstance(in insight) (f finding, ok bool) {
	if in.usable == 0 {
		return finding{verdict: Unknown}, true
	}
	if f, proven := in.proven(); proven {
		t := in.intent()
		if t.delays(in.outside.public) {
			return finding{verdict: Unknown}, true // no page yet, and no health either
		}
		return t.explain(f), true
	}
	switch {
	case in.workers != nil && in.workers.Main.State == checks.ProcGone:
		return finding{}, false // a restart, until the grace has passed
	case in.absentListeners() > 0:
		return finding{}, false // inside its window
	case in.workers != nil && in.workers.Serving == 0 && !atRest(in.workers, in.beside()):
		return finding{}, false // inside its window, or starting
	case slices.ContainsFunc(in.heartbeats, func(h heartbeatInsight) bool { return !beats(h.facts) }):
		return finding{}, false // waits for the first, or inside its window
	case in.blind > 0:
		// What is seen is well, but a check that shows nothing may hide the very
		// fault it proved a moment ago: blind is never health.
		return finding{verdict: Unknown}, true
	}
	return finding{verdict: Up}, true
}

// evidenced is a proof and when its evidence was seen.
type evidenced struct {
	Proof
	look time.Time
	// owned: of a listener that main held itself, or that is still held: nothing
	// that happened to workers explains it.
	owned bool
}

// ownedSlack is by how much an owned listener may have been missed after its
// workers: dumps are 100 ms apart, and ends are told at once. Chosen with a reserve
// for a busy host.
const ownedSlack = time.Second

// above reports whether e is the root rather than o. Ties go to whoever owns the
// listener: one that main held, or that was shut while workers lived, is the cause
// of their churn; one that vanished because the last worker died is an effect
// (JUDGING section 6).
func (e *evidenced) above(o *evidenced) bool {
	r, s := e.Cause.Rank(), o.Cause.Rank()
	switch {
	case r != s:
		return r > s
	case e.owned && !o.owned:
		return e.onset().Before(o.onset().Add(ownedSlack))
	case o.owned && !e.owned:
		return e.onset().Add(ownedSlack).Before(o.onset())
	}
	return e.onset().Before(o.onset())
}

func (e *evidenced) onset() time.Time { return e.look.Add(-e.Ago) }

// proven is what the inside proves: the root of all proofs, and the others as its
// effects. The verdict is the worst, and it pages if one of them does.
func (in *insight) proven() (finding, bool) {
	proofs := in.proofs()
	if len(proofs) == 0 {
		return finding{}, false
	}
	best, f := &proofs[0], finding{certain: Certain}
	for i := range proofs {
		p := &proofs[i]
		f.verdict, f.page = max(f.verdict, p.Verdict), f.page || p.Page
		if p.above(best) {
			best = p
		}
	}
	f.proof, f.at = best.Proof, best.onset()
	effect := func(c Cause) {
		if c != best.Cause && !slices.Contains(f.effects, c) {
			f.effects = append(f.effects, c)
		}
	}
	for i := range proofs {
		effect(proofs[i].Cause)
	}
	if in.workers != nil && f.verdict == Down { // inside their own windows, and explained
		if in.absentListeners() > 0 {
			effect(CausePortUnbound)
		}
		if in.queueWaits() {
			effect(CauseAcceptQueueStuck)
		}
	}
	if in.intruderAnswers() {
		f.verdict = Degraded
	}
	return f, true
}

// proofs lists all that is proven: of main, its workers and its past first, then
// of the listeners, then of the heartbeats.
func (in *insight) proofs() (out []evidenced) {
	b := in.beside()
	if w := in.workers; w != nil {
		for _, p := range workerProofs(w, b, nil) {
			out = append(out, evidenced{Proof: p, look: in.workersLook})
		}
	}
	if len(out) == 0 {
		if p, look, ok := in.past(); ok {
			out = append(out, evidenced{Proof: p, look: look})
		}
	}
	if w := in.workers; w != nil && len(out) == 0 && judgedByProcess(w, b) {
		b.suspects = suspectsText(w) // nothing is proven of them yet
	}
	if in.workers == nil || in.workers.Main.State != checks.ProcGone {
		out = in.listenerProofs(b, out)
	}
	return in.heartbeatProofs(out)
}

// listenerProofs judges each listener for itself: losing one of several leaves
// the instance degraded (JUDGING section 3).
func (in *insight) listenerProofs(b beside, out []evidenced) []evidenced {
	first, down := len(out), 0
	b.churn = first > 0
	for _, l := range in.listeners {
		b.rebinding = in.workers != nil && rebinding(in.workers, l.facts.AbsentFor)
		lost := false
		b.failedSince, b.nonePassed = in.outside.since(l.firstForeign())
		for _, p := range listenerProofs(l.facts, b, nil) {
			lost = lost || p.Verdict == Down
			owned := (l.facts.MainHeld || l.facts.Held) && (p.Cause == CausePortUnbound || p.Cause == CausePortStolen && l.facts.LostShare >= 1)
			out = append(out, evidenced{p, l.look, owned})
		}
		down += one(lost)
	}
	if down < in.declared {
		soften(out[first:])
	}
	return out
}

// heartbeatProofs judges each heartbeat; one of several is not the whole.
func (in *insight) heartbeatProofs(out []evidenced) []evidenced {
	first, down := len(out), 0
	for _, h := range in.heartbeats {
		if p, ok := silent(h.facts, in.alone); ok {
			down += one(p.Verdict == Down)
			out = append(out, evidenced{Proof: p, look: h.look})
		}
	}
	if down < in.beats {
		soften(out[first:])
	}
	return out
}

// soften makes down degraded: others of the same kind go on.
func soften(proofs []evidenced) {
	for i := range proofs {
		proofs[i].Verdict = min(proofs[i].Verdict, Degraded)
	}
}

// past decides by what the judge remembers: on a main that is gone, and on what
// has shown nothing good for longer than every window, whatever sharper rule did
// not match (JUDGING section 1: nothing else may be said of it).
func (in *insight) past() (p Proof, look time.Time, ok bool) {
	w := in.workers
	if w == nil {
		p, look, ok = in.holderGone()
		return p, look, ok
	}
	if w.Main.State == checks.ProcGone {
		if !in.served && !in.ever {
			return Proof{}, look, false
		}
		if p, ok = in.mainLoops(); !ok {
			p, ok = mainDead(w, in.outside.fails, in.grace)
		}
		return because(p, w, nil), in.workersLook, ok
	}
	if w.Serving > 0 || atRest(w, in.beside()) {
		return Proof{}, look, false
	}
	if p, ok = in.mainLoops(); ok {
		return because(p, w, nil), in.workersLook, true
	}
	if in.ever && !in.served && in.badFor >= startDeadline {
		p = Proof{Rule: "P10", Cause: CauseNeverReady, Verdict: Down, Page: true, Ago: in.badFor,
			Text: fmt.Sprintf("main %d is %s and has not served; nobody has for %s", w.Main.PID, w.Main.State, round(in.badFor))}
		return because(p, w, nil), in.workersLook, true
	}
	return Proof{}, look, false
}

// holderGone decides P4 where only listeners show: the process that held them is
// gone, with them.
func (in *insight) holderGone() (Proof, time.Time, bool) {
	for _, l := range in.listeners {
		if l.facts.Listening || l.facts.MainAlive || !in.ever {
			return Proof{}, time.Time{}, false
		}
	}
	if len(in.listeners) == 0 || in.badFor < in.grace && !in.outside.fails {
		return Proof{}, time.Time{}, false
	}
	first := in.listeners[0]
	return Proof{Rule: "P4", Cause: CauseMainDead, Verdict: Down, Page: true, Ago: in.badFor,
		Text: fmt.Sprintf("%s bound by nobody for %s, and the process that held it is gone", first.facts.Listener, round(in.badFor))}, first.look, true
}

// beside is what stands beside the facts of each look.
func (in *insight) beside() beside {
	b := beside{
		served: in.served, ever: in.ever, looksFail: in.outside.fails, looksPass: in.outside.passes,
		replacing: in.workers != nil && replaced(in.workers), listening: len(in.listeners) > 0, waiting: in.queueWaits(),
	}
	for _, l := range in.listeners {
		b.waiting = b.waiting || l.facts.Listening && mute(l.facts.Local, l.facts.LocalFails)
		if !l.facts.MainAlive || !l.facts.EverListening {
			continue
		}
		queue, stuck := queueStuck(l.facts, b)
		_, idle := noProgress(l.facts, b)
		b.stuck = b.stuck || stuck && queue.Verdict == Down || idle
	}
	return b
}

// queueWaits reports that connections wait at a listener and nobody takes them.
func (in *insight) queueWaits() bool {
	return slices.ContainsFunc(in.listeners, func(l listenerInsight) bool { return l.facts.Listening && queueWaits(l.facts) })
}

// intruderAnswers reports that strangers hold every listener, and that looks find
// the right identity there all the same: customers are served, by somebody.
func (in *insight) intruderAnswers() bool {
	if len(in.listeners) == 0 || len(in.listeners) < in.declared || !in.outside.passes {
		return false
	}
	for _, l := range in.listeners {
		if l.facts.ForeignLooks < stolenLooks || l.facts.LostShare < 1 || mute(l.facts.Local, l.facts.LocalFails) {
			return false
		}
		if failed, noPass := in.outside.since(l.firstForeign()); failed && noPass {
			return false
		}
	}
	return true
}

func (in *insight) absentListeners() int {
	n := 0
	for _, l := range in.listeners {
		n += one(!l.facts.Listening)
	}
	return n
}
