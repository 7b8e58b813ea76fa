package correlate

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Proof is an inside proof that an instance is broken (JUDGING section 3).
type Proof struct {
	Rule  string
	Cause Cause
	// Because is what brought the cause about, where the facts tell; else empty.
	Because Cause `json:",omitempty"`
	// Verdict is Down, or Degraded if somebody goes on serving.
	Verdict Verdict
	// Page says that it wakes somebody; otherwise it is a ticket.
	Page bool
	// Ago is how long before the look the fault was first seen.
	Ago time.Duration
	// Text is the proof in words, the middle of the page's sentence.
	Text string
}

// The windows that several rules of JUDGING section 3 share; the others stand
// where their rule is decided.
const (
	noneLooks     = 2                      // every rule about workers: nobody serves in 2 looks
	nobodyFloor   = 5 * time.Second        // section 1: past the windows, main alive and nobody serving is down
	startDeadline = 60 * time.Second       // P10: not serving by then
	workerStart   = time.Second            // section 3, "Serving worker": until the start time is learnt
	secondLook    = 100 * time.Millisecond // P3: 2 looks 100 ms apart; chosen for main too
	fewHeld       = 5 * time.Second        // P3, some: held for 5 s; chosen for a part of a queue too
)

// beside is what the judge knows beside one look. A single look has nothing of
// it: the zero value, but for served.
type beside struct {
	served    bool // an instance of this generation has served, whoever saw it
	ever      bool // one of some generation has
	looksFail bool // looks pinned to the instance, or those at its service's only one, fail by quorum
	looksPass bool // they look, and pass
	replacing bool // workers own the listener, and nobody serves
	rebinding bool // workers that own the listener are younger than they need to bind it
	listening bool // listeners are looked at for themselves
	waiting   bool // connections wait at one of them, and nobody takes them
	stuck     bool // P5 or P8 is proven at one of them
	churn     bool // something is proven about its workers
	// failedSince: a look that began since a stranger was first seen at the listener
	// failed, from any one place; nonePassed: no such look passed.
	failedSince, nonePassed bool
	// suspects names the workers of which P3 or P6 will decide; empty if none.
	suspects string
}

// ProveWorkers says what one look at main and its workers proves, the likeliest
// root first. served says that an instance of this generation has served, whoever
// saw it: only then can it be proven broken. It may be a guess: what this agent
// has not seen serve it proves by silence only. That main is gone proves nothing
// yet: it needs the restart grace.
func ProveWorkers(f *checks.WorkerFacts, served bool) (Proof, bool) {
	return root(workerProofs(f, beside{served: served, ever: served}, nil))
}

// ProveListener says what one look at one declared listener proves. replacing
// says that the workers own the socket and are being replaced, so that the rules
// about workers decide first.
func ProveListener(f *checks.ListenerFacts, replacing bool) (Proof, bool) {
	return root(listenerProofs(f, beside{replacing: replacing}, nil))
}

// ProveHeartbeat says what one look at a workload's own word proves. alone says
// that nothing else tells of the instance.
func ProveHeartbeat(f *checks.HeartbeatFacts, alone bool) (Proof, bool) {
	return silent(f, alone)
}

// Prove says what one finding of an inside kind proves by itself, whatever its
// kind. served is as for ProveWorkers.
func Prove(f *checks.Finding, served bool) (Proof, bool) {
	switch {
	case f.Workers != nil:
		return ProveWorkers(f.Workers, served)
	case f.Listener != nil:
		return ProveListener(f.Listener, false)
	case f.Heartbeat != nil:
		return ProveHeartbeat(f.Heartbeat, true)
	}
	return Proof{}, false
}

// root is the proof that can explain the others: the highest on the ladder, then
// that of the earliest onset, then the first. Its verdict is the worst of all,
// and it pages if one of them does.
func root(proofs []Proof) (Proof, bool) {
	if len(proofs) == 0 {
		return Proof{}, false
	}
	best := proofs[0]
	worst, page := best.Verdict, best.Page
	for _, p := range proofs[1:] {
		worst, page = max(worst, p.Verdict), page || p.Page
		if r, b := p.Cause.Rank(), best.Cause.Rank(); r > b || r == b && p.Ago > best.Ago {
			best = p
		}
	}
	best.Verdict, best.Page = worst, page
	return best, true
}

// shut reports that our own connection got nowhere: nobody listens, or nobody
// took it.
func shut(l checks.LocalLook) bool { return l == checks.LocalRefused || l == checks.LocalUnanswered }

// mute reports that our own connection, taken or not, brought nothing back. One that
// was taken counts only if the listener has answered us before (fails counts it
// then): it may speak another protocol and wait for more.
func mute(l checks.LocalLook, fails int) bool {
	return shut(l) || l == checks.LocalAccepted && fails > 0
}

// pages reports whether well of n workers are so few that somebody must get up:
// fewer than half, or than the declared minimum (JUDGING section 5).
func pages(well, n, minimum int) bool { return 2*well < n || well < minimum }
