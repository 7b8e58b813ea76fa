package inside

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

// Own is our own connection to one listener, as one check wants it: since when
// it is needed, and how often in a row it went the same bad way. Owned by the
// check; the looker may be shared.
type Own struct {
	Looker *local.Looker
	since  time.Time // of the present need; zero if there is none
	now    streak
	before streak // without the last look counted
	began  time.Time
	answer Answer    // to the last look counted
	empty  time.Time // the look that began while no worker lived
}

// streak is a run of looks that ended the same way.
type streak struct {
	look  checks.LocalLook
	fails int
	first time.Time
}

// Answer is what became of the last look, on the boot clock.
type Answer struct {
	Look checks.LocalLook
	// Empty: no worker lived when it began.
	Empty        bool
	Began, Ended time.Duration
	// Fails counts the looks in a row that ended so, if that is badly; For is the
	// time since the first of them began.
	Fails int
	For   time.Duration
	// Peer is the process that made the listening unix socket; 0 if not known.
	Peer int
}

// Rest says that no look is needed now, and forgets what was seen.
func (o *Own) Rest() {
	o.since, o.now, o.before, o.began, o.answer = time.Time{}, streak{}, streak{}, time.Time{}, Answer{}
}

// Needed reports whether a look was asked for since the last rest, Failing
// whether the last one went badly.
func (o *Own) Needed() bool  { return !o.since.IsZero() }
func (o *Own) Failing() bool { return o.now.fails > 0 }

// Look asks for a look at the listener and returns the answer to the last one;
// its Look is empty until there is one. Whether an unanswered connection was
// taken is in a dump after it, if the kernel did not tell it exactly; dumped is
// when the last dump ended, and now is the moment clock on the boot clock.
func (o *Own) Look(clock time.Time, ask local.Ask, l *host.Listener, dumped, now time.Duration) (a Answer, started bool) {
	if o.since.IsZero() {
		o.since = clock
	}
	ask.Since = o.since
	r, started := o.Looker.Look(clock, ask)
	if r.Look != "" {
		ended := now - clock.Sub(r.Ended)
		if look, told := settle(&r, l, dumped, ended); told {
			o.take(&r, look)
			o.answer = Answer{Look: look, Began: now - clock.Sub(r.Began), Ended: ended, Peer: r.Peer, Empty: r.Began.Equal(o.empty)}
		}
	}
	if started {
		o.empty = time.Time{}
	}
	a = o.answer
	if a.Fails = o.now.fails; a.Fails > 0 {
		a.For = clock.Sub(o.now.first)
	}
	return a, started
}

// Empty says of the look that has just started that no worker lives.
func (o *Own) Empty(clock time.Time) { o.empty = clock }

// settle says what became of the connection where only a dump after its end can
// tell: an unanswered one was taken from the queue if nobody waits, and one that
// was reset was taken if somebody goes on listening.
func settle(r *local.Result, l *host.Listener, dumped, ended time.Duration) (look checks.LocalLook, told bool) {
	unsure := r.Look == checks.LocalUnanswered && !r.Exact || r.Reset
	switch {
	case !unsure || !l.Listening:
		return r.Look, true
	case dumped <= ended:
		return "", false
	case r.Reset || l.Queue == 0:
		return checks.LocalAccepted, true
	}
	return r.Look, true
}

// take counts a look, once, however often it is told and whatever it said so far.
func (o *Own) take(r *local.Result, look checks.LocalLook) {
	if r.Began.Equal(o.began) {
		if look == o.now.look {
			return
		}
		o.now = o.before
	}
	o.before, o.began = o.now, r.Began
	if look != o.now.look {
		o.now = streak{look: look, first: r.Began}
	}
	if bad(look, o.Looker.Answered()) {
		o.now.fails++
	}
}

func bad(look checks.LocalLook, answers bool) bool {
	switch look {
	case checks.LocalRefused, checks.LocalUnanswered:
		return true
	case checks.LocalAccepted:
		return answers
	}
	return false // answered; failed for reasons that may be ours
}
