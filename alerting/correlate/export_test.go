package correlate

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// TableInput is the reduced input of the instance table, for the test that
// enumerates it.
type TableInput struct {
	Workers                    *checks.WorkerFacts // nil: blind or expired
	Served                     bool
	Listeners                  []*checks.ListenerFacts // those that are usable
	Declared                   int                     // listeners in configuration
	Heartbeats                 []*checks.HeartbeatFacts
	Alone                      bool // the heartbeats are
	OutsideFails               bool // looks pinned to it; they pass if OutsidePasses
	OutsidePasses, PublicFails bool
}

// DecideInstance runs the instance table with the default grace. ok is false
// for "keep".
func DecideInstance(t TableInput, grace time.Duration) (v Verdict, p Proof, ok bool) {
	in := insight{
		workers: t.Workers, workersLook: tableNow, served: t.Served, declared: t.Declared, blind: 1 + t.Declared + len(t.Heartbeats),
		beats: len(t.Heartbeats), alone: t.Alone, outside: outsideWord{fails: t.OutsideFails, passes: t.OutsidePasses, public: t.PublicFails}, grace: grace,
	}
	for _, h := range t.Heartbeats {
		in.usable++
		in.heartbeats = append(in.heartbeats, heartbeatInsight{h, tableNow})
	}
	if t.Workers != nil {
		in.usable++
	}
	for _, l := range t.Listeners {
		in.usable++
		in.listeners = append(in.listeners, listenerInsight{l, tableNow})
	}
	in.blind -= in.usable
	f, ok := decideInstance(in)
	return f.verdict, f.proof, ok
}

var tableNow = time.Date(2026, 8, 27, 15, 55, 0, 0, time.UTC)

// LooksAgainst is how many looks must fail in a row where a share is lost.
func LooksAgainst(share float64) int { return looksAgainst(share) }
