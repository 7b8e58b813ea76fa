package correlate

import (
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
	name       string
	workers    []*insideCheck // kind workers; configuration allows one
	listeners  []*insideCheck // kind port, one per declared listener
	heartbeats []*insideCheck
	pinned     []*outsideCheck
	// alone: its heartbeats are all that tells of it.
	alone bool
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
	// leaving: an announced intent holds back what the inside proves.
	leaving bool
	room    []listenerInsight // reused by every insight
}

// inside lists its inside checks, by kind.
func (i *instance) inside() [3][]*insideCheck {
	return [...][]*insideCheck{i.workers, i.listeners, i.heartbeats}
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

// outsideWord is what the places say that concerns an instance.
type outsideWord struct {
	fails  bool // looks pinned to it, or at the public name of a lone instance, fail by quorum
	passes bool // they look, and none fails
	public bool // customers see the service fail, for certain
	// lastFail and lastPass are when the newest looks began that failed and that
	// passed, by quorum or not, pinned or at the public name; gathered where a
	// stranger is seen.
	lastFail, lastPass time.Time
}

// since reports whether a look that began at or after first failed, and whether
// none has passed.
func (o *outsideWord) since(first time.Time) (failed, noPass bool) {
	return !o.lastFail.IsZero() && !o.lastFail.Before(first), o.lastPass.Before(first)
}

// insight is the reduced input of the table: what the inside shows now.
type insight struct {
	workers     *checks.WorkerFacts
	workersLook time.Time
	served      bool // this generation has served
	ever        bool // some generation has
	lives       int  // generations that ended without serving since one served
	badFor      time.Duration
	listeners   []listenerInsight
	heartbeats  []heartbeatInsight
	alone       bool
	declared    int // listeners that are configured, seen or not
	beats       int // heartbeats that are
	usable      int // inside checks that show something
	blind       int // inside checks that show nothing: blind, expired, never seen
	outside     outsideWord
	grace       time.Duration
}

type listenerInsight struct {
	facts *checks.ListenerFacts
	look  time.Time
}

// firstForeign is when a stranger was first seen there.
func (l *listenerInsight) firstForeign() time.Time { return l.look.Add(-l.facts.ForeignFor) }

type heartbeatInsight struct {
	facts *checks.HeartbeatFacts
	look  time.Time
}

func (i *instance) insight(now time.Time, outside outsideWord, grace time.Duration) insight {
	in := insight{declared: len(i.listeners), beats: len(i.heartbeats), outside: outside, grace: grace, listeners: i.room[:0], alone: i.alone}
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
	for _, h := range i.heartbeats {
		if h.usable(now) && h.cur.Finding.Heartbeat != nil {
			in.heartbeats = append(in.heartbeats, heartbeatInsight{h.cur.Finding.Heartbeat, h.cur.LookTime()})
			in.usable++
		}
	}
	i.room = in.listeners
	in.ever = i.served != "" || !i.good.IsZero()
	if !i.good.IsZero() {
		in.badFor = now.Sub(i.good)
	}
	in.blind = len(i.workers) + len(i.listeners) + len(i.heartbeats) - in.usable
	return in
}

// decide is the decision on the instance at now, or the one that goes on
// standing, and what is remembered of it.
func (i *instance) decide(now time.Time, outside outsideWord, grace time.Duration) finding {
	in := i.insight(now, outside, grace)
	i.leaving = in.intent().delays(outside.public)
	f, ok := decideInstance(in)
	if !ok {
		return i.standing
	}
	i.lost = f.verdict == Unknown && (i.lost || i.standing.verdict.Bad())
	i.standing = f
	return f
}

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
	case f.Heartbeat != nil:
		good = beats(f.Heartbeat) && len(i.workers)+len(i.listeners) == 0
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
		w := f.Workers
		return w.Serving == 0 && w.Main.State != checks.ProcGone && !(atRest(w, beside{}) && w.Chain == 0)
	case f.Listener != nil:
		return !f.Listener.Listening && f.Listener.MainAlive
	}
	return false
}
