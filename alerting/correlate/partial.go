package correlate

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Where the inside shows that some of n are broken, each look fails with their
// share of the connections: looks that fail now and then are what is expected, and
// wake nobody (JUDGING section 4, "Partial failure").
const (
	// Where they share one socket the broken ones take none, so that nothing is
	// expected to fail. Chosen: one look more than without a doubt.
	partialLooks = 3
	// A place's run of fails is more than chance once the expected share explains it
	// once in 10,000 times: 7 looks in a row for 1 of 4, 14 for half. Chosen: two of
	// three places at once is then 3 in 10^8 rounds, so that a worker which is stuck
	// for a day of looks every second costs no page in 300 such days.
	chanceOfRun = 1e-4
	// Chosen: of three quarters lost, which pages on its own account (section 5), so
	// that only the word "down" waits; beyond that the bound is no longer kept.
	mostLooks = 32
)

// doubts is what the inside shows that makes a fail need more.
type doubts struct {
	restarting time.Time // when it last saw what may be a restart
	partial    bool      // some of several are broken now
	looks      int       // the fails in a row that their share does not explain; 0 if none are
	mended     time.Time // when that was last over
}

// expect takes in the share of looks that may fail at now by what the inside shows.
func (d *doubts) expect(share float64, partial bool, now time.Time) {
	if d.partial && !partial {
		d.mended = now
	}
	d.partial, d.looks = partial, 0
	if partial {
		d.looks = looksAgainst(share)
	}
}

// looksAgainst is how many looks must fail in a row before a lost share of the
// connections does not explain it.
func looksAgainst(share float64) int {
	n := 0
	for p := 1.0; p > chanceOfRun && n < mostLooks; p *= share {
		n++
	}
	return max(n, partialLooks)
}

// confirmed reports whether further looks, since the last sign of a restart,
// confirmed the fail, or the fails have outlasted any restart. A run that began
// while some were broken must outlast their mending.
func (b *ballot) confirmed(d doubts) bool {
	if b.fails < max(confirmLooks, d.looks) {
		return false
	}
	look := b.cur.LookTime()
	if !d.partial && b.firstFail.Before(d.mended) && look.Sub(d.mended) < restartGap {
		return false
	}
	since := b.firstFail
	if d.restarting.After(since) {
		since = d.restarting
	}
	return look.Sub(since) >= confirmSpan || look.Sub(b.firstFail) >= restartGap
}

// partial reports whether the inside shows now that some of several workers or
// sockets are broken and others are not, and the share of the connections that
// this costs: of k of n sockets k/n, of workers that each have their own too, and
// the strangers' share. Workers behind one socket cost none: others accept.
func (i *instance) partial(now time.Time) (share float64, yes bool) {
	apart := true // each worker may have a socket of its own
	for _, c := range i.listeners {
		l := c.cur.Finding.Listener
		if !c.usable(now) || l == nil || !l.Listening {
			continue
		}
		apart = l.Sockets > 1
		lost := 0.0
		if k := stuckOf(l); k > 0 && k < l.Sockets {
			lost = float64(k) / float64(l.Sockets)
		}
		if l.ForeignLooks > 0 && l.LostShare < 1 {
			lost += l.LostShare
		}
		share, yes = max(share, lost), yes || lost > 0
	}
	for _, c := range i.workers {
		w := c.cur.Finding.Workers
		if !c.usable(now) || w == nil || w.Serving == 0 || w.Frozen == 0 && (w.Spinning == 0 || w.Spinning >= w.Serving) {
			continue
		}
		yes = true
		if apart {
			share = max(share, stuckShare(w))
		}
	}
	return share, yes
}

// stuckShare is the part of the workers that are frozen or suspected to spin.
func stuckShare(w *checks.WorkerFacts) float64 {
	k := w.Frozen + w.Spinning
	return float64(k) / float64(max(workersOf(w, k), 1))
}

// intruded reports whether a stranger is seen at one of its listeners.
func (i *instance) intruded(now time.Time) bool {
	for _, c := range i.listeners {
		if l := c.cur.Finding.Listener; c.usable(now) && l != nil && l.ForeignLooks > 0 {
			return true
		}
	}
	return false
}

// lastLooks is when the newest looks began that failed and that passed, at any of
// the checks and from any place that votes.
func lastLooks(group []*outsideCheck) (fail, pass time.Time) {
	for _, o := range group {
		for _, b := range o.ballots {
			if b.place < 0 {
				continue
			}
			fail, pass = later(fail, b.failBegan), later(pass, b.passBegan)
		}
	}
	return fail, pass
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
