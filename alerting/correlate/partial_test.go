package correlate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

func TestLooksAgainst_AtEachShare(t *testing.T) {
	for _, row := range []struct {
		name  string
		share float64
		want  int
	}{
		{"nothing is lost", 0, 3},
		{"one of 1,000", 0.001, 3}, // twice would do, and a doubt wants three
		{"one of 32", 1. / 32, 3},
		{"one of 4", 1. / 4, 7}, // 0.25^7 = 0.00006
		{"half", 1. / 2, 14},    // 0.5^14 = 0.00006
		{"three of 4", 3. / 4, 32},
		{"all but a few", 0.999, 32},
	} {
		if got := correlate.LooksAgainst(row.share); got != row.want {
			t.Errorf("%s: LooksAgainst(%g) = %d, want %d", row.name, row.share, got, row.want)
		}
	}
}

// partialWorld is a lone instance whose workers have a socket each, with a part of
// them broken, and three places that look every second.
type partialWorld struct {
	t       *testing.T
	j       *correlate.Judge
	n       numbering
	at      time.Time
	workers checks.WorkerFacts
	port    checks.ListenerFacts
}

func newPartialWorld(t *testing.T) *partialWorld {
	p := policy.Policy{Services: []policy.Service{{
		Name: "lb", Region: "par", Instances: []string{"lb-1"},
		Checks: []policy.Check{
			{ID: "lb/http", Kind: checks.KindHTTP, Interval: time.Second},
			{ID: "lb/workers", Kind: checks.KindWorkers, Instance: "lb-1", Interval: time.Second},
			{ID: "lb/port", Kind: checks.KindPort, Instance: "lb-1", Interval: time.Second},
		},
	}}}
	for _, name := range []string{"a", "b", "c"} {
		p.Places = append(p.Places, policy.Place{Name: name, Network: "n" + name, Region: "par"})
	}
	j, err := correlate.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return &partialWorld{t: t, j: j, n: numbering{}, at: start,
		workers: checks.WorkerFacts{Main: checks.Process{PID: 100, State: checks.ProcAlive}, Generation: "100.1", Serving: 4, Expected: 4, LivingWorkers: 4, EverServed: true},
		port:    checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true, Sockets: 4},
	}
}

// round is a second: the inside says what it sees, and each place looks.
func (w *partialWorld) round(fails func() bool) correlate.State {
	w.at = w.at.Add(time.Second)
	workers, port := w.workers, w.port
	w.j.Observe(w.n.stored("lb/workers", agent, "boot-1", w.at, checks.Finding{Outcome: checks.Warn, Suspicious: true, Workers: &workers}), w.at)
	w.j.Observe(w.n.stored("lb/port", agent, "boot-1", w.at, checks.Finding{Outcome: checks.Warn, Suspicious: true, Listener: &port}), w.at)
	for _, place := range []string{"a", "b", "c"} {
		f := checks.Finding{Outcome: checks.Pass}
		if fails() {
			f = checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonNoAnswer}
		}
		w.j.Observe(w.n.stored("lb/http", evidence.Vantage{Place: place, Name: "prober"}, "boot-1", w.at, f), w.at)
	}
	return w.j.States()[0]
}

// TestPartial_ChanceIsNoOutageAndAnOutageIsNoChance has looks fail with the share
// that the inside explains, for an hour each, and then all of them.
func TestPartial_ChanceIsNoOutageAndAnOutageIsNoChance(t *testing.T) {
	for _, row := range []struct {
		name   string
		broken func(w *partialWorld)
		share  float64
		pages  bool // chance may page (P7)
		cause  correlate.Cause
		within int // rounds of an outage until it is down
	}{
		{"one of four frozen", func(w *partialWorld) {
			w.workers.Serving, w.workers.Frozen, w.workers.FrozenFor = 3, 1, time.Minute
			w.port.Group = []checks.SocketFacts{{Inode: 1, Queue: 3, QueueFor: time.Minute, QueueDumps: 600}}
		}, 0.25, false, correlate.CauseWorkersFrozen, 7},
		{"one of four spins", func(w *partialWorld) {
			w.workers.Spinning, w.workers.SpinningFor = 1, time.Minute
			w.port.Group = []checks.SocketFacts{{Inode: 1, Queue: 3, QueueFor: time.Minute, QueueDumps: 600}}
		}, 0.25, false, correlate.CauseWorkersSpinning, 7},
		{"an intruder takes half", func(w *partialWorld) {
			w.port.Sockets, w.port.ForeignLooks, w.port.ForeignFor, w.port.LostShare = 8, 9, time.Minute, 0.5
		}, 0.5, true, correlate.CausePortStolen, 14},
	} {
		for seed := range uint64(3) {
			w, chance := newPartialWorld(t), rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a story, not a secret
			w.round(func() bool { return false })
			row.broken(w)
			for i := range 3600 {
				st := w.round(func() bool { return chance.Float64() < row.share })
				if st.Verdict != correlate.Degraded || st.Cause != row.cause || st.Page && !row.pages {
					t.Fatalf("%s, seed %d, second %d of looks that fail by chance: got %s %s (page %t), want degraded %s", row.name, seed, i, st.Verdict, st.Cause, st.Page, row.cause)
				}
			}
			st := w.round(func() bool { return false })
			for i := 1; i <= row.within; i++ {
				st = w.round(func() bool { return true })
				if i < row.within && st.Verdict != correlate.Degraded {
					t.Errorf("%s, seed %d: got %s after %d rounds of nothing but fails, want degraded until %d", row.name, seed, st.Verdict, i, row.within)
				}
			}
			if st.Verdict != correlate.Down || !st.Page {
				t.Errorf("%s, seed %d: got %s (page %t) after %d rounds of nothing but fails, want down and a page", row.name, seed, st.Verdict, st.Page, row.within)
			}
		}
	}
}
