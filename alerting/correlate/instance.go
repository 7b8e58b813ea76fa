package correlate

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// insideCheck is the current evidence of one inside check.
type insideCheck struct {
	check policy.Check
	cur   evidence.Stored
}

// usable reports whether the evidence may be judged by: valid, and not blind.
func (c *insideCheck) usable(now time.Time) bool {
	return valid(&c.cur, c.check, now) && c.cur.Finding.Outcome != checks.Blind
}

// instance is one running copy of a service, as the judge knows it.
type instance struct {
	name      string
	workers   []*insideCheck // kind workers; configuration allows one
	listeners []*insideCheck // kind port, one per declared listener
	pinned    []*outsideCheck
	// served is the newest generation that has served, whoever saw it; empty if
	// none has. failed holds the generations seen since, at most keptLives.
	served string
	failed []string
	// good is when the inside last showed somebody serving, or listening.
	good time.Time
	// standing is the last decision that was not "keep".
	standing finding
	// lost: the last decision the inside could make was a broken one, and it
	// has shown nothing since.
	lost bool
	room []listenerInsight // reused by every insight
}

// finding is what the table decides of one instance.
type finding struct {
	verdict Verdict
	proof   Proof // set if verdict is Down or Degraded
	effects []Cause
	at      time.Time // onset
	page    bool
	text    string // in words, if the proof has none
	certain Certainty
}

// insight is the reduced input of the table: what the inside shows now.
type insight struct {
	workers      *checks.WorkerFacts
	workersLook  time.Time
	served       bool // this generation has served
	ever         bool // some generation has
	lives        int  // generations that ended without serving since one served
	badFor       time.Duration
	listeners    []listenerInsight
	declared     int  // listeners that are configured, seen or not
	usable       int  // inside checks that show something
	blind        int  // inside checks that show nothing: blind, expired, never seen
	outsideFails bool // looks pinned to the instance, or the service's own, fail by quorum
	grace        time.Duration
}

type listenerInsight struct {
	facts *checks.ListenerFacts
	look  time.Time
}

func (i *instance) insight(now time.Time, outsideFails bool, grace time.Duration) insight {
	in := insight{declared: len(i.listeners), outsideFails: outsideFails, grace: grace, listeners: i.room[:0]}
	for _, w := range i.workers {
		if w.usable(now) && w.cur.Finding.Workers != nil {
			in.workers, in.workersLook = w.cur.Finding.Workers, w.cur.LookTime()
			in.served = in.workers.EverServed || i.served == in.workers.Generation
			in.lives = len(i.failed)
			if in.workers.Main.State != checks.ProcGone && in.lives > 0 {
				in.lives-- // the present one is still trying
			}
			in.usable++
		}
	}
	for _, l := range i.listeners {
		if l.usable(now) && l.cur.Finding.Listener != nil {
			in.listeners = append(in.listeners, listenerInsight{l.cur.Finding.Listener, l.cur.LookTime()})
			in.usable++
		}
	}
	i.room = in.listeners
	in.ever = i.served != "" || !i.good.IsZero()
	if !i.good.IsZero() {
		in.badFor = now.Sub(i.good)
	}
	in.blind = len(i.workers) + len(i.listeners) - in.usable
	return in
}

// decide is the decision on the instance at now, or the one that goes on
// standing, and what is remembered of it.
func (i *instance) decide(now time.Time, outsideFails bool, grace time.Duration) finding {
	f, ok := decideInstance(i.insight(now, outsideFails, grace))
	if !ok {
		return i.standing
	}
	i.lost = f.verdict == Unknown && (i.lost || i.standing.verdict.Bad())
	i.standing = f
	return f
}

// keptLives bounds how many generations that did not serve are remembered
// (chosen: the rule asks for two).
const keptLives = 8

// mainLives is how many mains must have ended without serving (P4).
const mainLives = 2

// learn takes in what inside evidence says of the instance's past.
func (i *instance) learn(e *evidence.Stored) {
	good := false
	switch f := &e.Finding; {
	case f.Workers != nil:
		w := f.Workers
		good = w.Serving > 0
		switch {
		case w.EverServed || good:
			i.served, i.failed = w.Generation, i.failed[:0]
		case w.Generation != i.served && (len(i.failed) == 0 || i.failed[len(i.failed)-1] != w.Generation) && len(i.failed) < keptLives:
			i.failed = append(i.failed, w.Generation)
		}
	case f.Listener != nil:
		good = f.Listener.Listening && len(i.workers) == 0
	}
	if look := e.LookTime(); good && look.After(i.good) {
		i.good = look
	}
}

// mayBeRestart reports whether inside evidence shows main alive with nobody
// serving, or a listener gone: a restart of the workers looks so, for a while. A
// main that is gone is another matter: it is dead once the outside fails too.
func mayBeRestart(f *checks.Finding) bool {
	switch {
	case f.Workers != nil:
		return f.Workers.Serving == 0 && f.Workers.Main.State != checks.ProcGone
	case f.Listener != nil:
		return !f.Listener.Listening && f.Listener.MainAlive
	}
	return false
}

// decideInstance is the table of one instance: a total function of what the
// inside shows, first match wins. ok is false for "keep": nothing is proven
// either way, what stood goes on standing.
func decideInstance(in insight) (f finding, ok bool) {
	if in.usable == 0 {
		return finding{verdict: Unknown}, true
	}
	unbound, unboundLook, unboundProof := in.provenListeners()
	if w := in.workers; w != nil {
		if w.Main.State == checks.ProcGone {
			return in.mainGone(w)
		}
		if proof, proven := ProveWorkers(w, in.served); proven {
			f := broken(Down, proof, in.workersLook)
			// Ties go to whoever owns the listener: a listener that was shut
			// while workers lived is the cause of their churn; one that
			// vanished because the last worker died is an effect.
			if unbound > 0 && unboundLook.Add(-unboundProof.Ago).Before(f.at) {
				g := broken(Down, unboundProof, unboundLook)
				g.effects = []Cause{proof.Cause}
				return g, true
			}
			if in.absentListeners() > 0 {
				f.effects = append(f.effects, CausePortUnbound)
			}
			return f, true
		}
	}
	if f, ok := in.pastEveryWindow(); ok {
		return f, true
	}
	switch {
	case unbound > 0 && unbound == in.declared:
		return broken(Down, unboundProof, unboundLook), true
	case unbound > 0:
		return broken(Degraded, unboundProof, unboundLook), true
	case in.absentListeners() > 0:
		return finding{}, false // inside its window
	case in.workers != nil && in.workers.Serving == 0:
		return finding{}, false // inside its window, or starting
	case in.blind > 0:
		// What is seen is well, but a check that shows nothing may hide the very
		// fault it proved a moment ago: blind is never health.
		return finding{verdict: Unknown}, true
	}
	return finding{verdict: Up}, true
}

// mainGone decides on an instance whose main process is gone: a restart until
// the grace has passed or the outside fails too (JUDGING section 3, last
// paragraph); P12 if workers go on serving.
func (in *insight) mainGone(w *checks.WorkerFacts) (finding, bool) {
	if !in.served && !in.ever {
		return finding{}, false
	}
	if f, ok := in.mainLoops(); ok {
		return f, true
	}
	proof := Proof{Rule: "P4", Cause: CauseMainDead, Ago: w.MainGoneFor,
		Text: fmt.Sprintf("main process %d is gone for %s and no successor appeared", w.Main.PID, round(w.MainGoneFor))}
	switch {
	case w.Serving > 0 && w.MainGoneFor >= in.grace && !in.outsideFails:
		proof.Rule = "P12"
		proof.Text = fmt.Sprintf("main process %d is gone for %s; %d workers go on serving, nothing will be respawned or reloaded",
			w.Main.PID, round(w.MainGoneFor), w.Serving)
		f := broken(Degraded, proof, in.workersLook)
		f.page = false
		return f, true
	case w.MainGoneFor >= in.grace || in.outsideFails:
		f := broken(Down, proof, in.workersLook)
		if in.absentListeners() > 0 {
			f.effects = []Cause{CausePortUnbound}
		}
		return f, true
	}
	return finding{}, false
}

// mainLoops decides on mains that die before they served, one after the other:
// P4, thin. That a main died abnormally, or younger than it takes to start, is
// not known here; that two ended without serving, and nobody has served for
// longer than any window, is.
func (in *insight) mainLoops() (finding, bool) {
	if in.lives < mainLives || in.badFor < nobodyFloor {
		return finding{}, false
	}
	return broken(Down, Proof{Rule: "P4", Cause: CauseMainCrashLooping, Ago: in.badFor,
		Text: fmt.Sprintf("%d main processes ended one after the other before they served; nobody has served for %s", in.lives, round(in.badFor))}, in.workersLook), true
}

// pastEveryWindow bounds "keep": an instance that was well, and of which the
// inside has shown nothing good for longer than every window, is down, whatever
// sharper rule did not match (section 1: nothing else may be said of it).
func (in *insight) pastEveryWindow() (finding, bool) {
	if w := in.workers; w != nil {
		if w.Serving > 0 {
			return finding{}, false
		}
		if f, ok := in.mainLoops(); ok {
			return f, true
		}
		if in.ever && !in.served && in.badFor >= startDeadline {
			return broken(Down, Proof{Rule: "P10", Cause: CauseNeverReady, Ago: in.badFor,
				Text: fmt.Sprintf("main %d is alive and has not served; nobody has for %s", w.Main.PID, round(in.badFor))}, in.workersLook), true
		}
		return finding{}, false
	}
	// Only listeners show: the process that held them is gone, with them.
	for _, l := range in.listeners {
		if l.facts.Listening || l.facts.MainAlive || !in.ever {
			return finding{}, false
		}
	}
	if len(in.listeners) == 0 || in.badFor < in.grace && !in.outsideFails {
		return finding{}, false
	}
	first := in.listeners[0]
	return broken(Down, Proof{Rule: "P4", Cause: CauseMainDead, Ago: in.badFor,
		Text: fmt.Sprintf("%s bound by nobody for %s, and the process that held it is gone", first.facts.Listener, round(in.badFor))}, first.look), true
}

func broken(v Verdict, p Proof, look time.Time) finding {
	return finding{verdict: v, proof: p, at: look.Add(-p.Ago), page: true, certain: Certain}
}

// provenListeners counts the listeners that P2 proves unbound and returns the
// proof with the earliest onset.
func (in *insight) provenListeners() (n int, look time.Time, first Proof) {
	w := in.workers
	replacing := w != nil && w.Serving == 0 && !w.MainServes && w.Main.State != checks.ProcGone
	for _, l := range in.listeners {
		p, ok := ProveListener(l.facts, replacing)
		if !ok {
			continue
		}
		if n == 0 || l.look.Add(-p.Ago).Before(look.Add(-first.Ago)) {
			look, first = l.look, p
		}
		n++
	}
	return n, look, first
}

func (in *insight) absentListeners() int {
	n := 0
	for _, l := range in.listeners {
		if !l.facts.Listening {
			n++
		}
	}
	return n
}
