package correlate_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// world is the policy of the properties: an instance seen from both sides, four
// places on two networks, a public check and a pinned one.
func world() policy.Policy {
	return policy.Policy{
		Services: []policy.Service{{
			Name: "lb", Region: "par", Instances: []string{"lb-1"},
			Checks: []policy.Check{
				{ID: "lb/http", Kind: checks.KindHTTP, Interval: 2 * time.Second},
				{ID: "lb/http-1", Kind: checks.KindHTTP, Instance: "lb-1", Interval: 3 * time.Second},
				{ID: "lb/workers", Kind: checks.KindWorkers, Instance: "lb-1", Interval: 2 * time.Second},
				{ID: "lb/port", Kind: checks.KindPort, Instance: "lb-1", Interval: 2 * time.Second},
			},
		}},
		Places: []policy.Place{
			{Name: "a", Network: "n1", Region: "par"}, {Name: "b", Network: "n2", Region: "par"},
			{Name: "c", Network: "n2", Region: "par"}, {Name: "d", Network: "n1", Region: "par"},
		},
	}
}

var outsideVantages = []evidence.Vantage{
	{Place: "a", Name: "p1"}, {Place: "a", Name: "p2"}, {Place: "b", Name: "p1"}, {Place: "c", Name: "p1"}, {Place: "d", Name: "p1"}, {Place: "elsewhere", Name: "p1"},
}

var agent = evidence.Vantage{Place: "host", Name: "agent"}

// numbering gives evidence its sequence, per vantage and boot.
type numbering map[string]uint64

func (n numbering) stored(check string, v evidence.Vantage, boot string, at time.Time, f checks.Finding) evidence.Stored {
	n[v.String()+boot]++
	return evidence.Stored{At: at, Evidence: evidence.Evidence{Check: check, Vantage: v, Boot: boot, Seq: n[v.String()+boot], Finding: f}}
}

var outcomes = []checks.Outcome{checks.Pass, checks.Fail, checks.Fail, checks.Warn, checks.Blind}

func drawOutside(t *rapid.T) (string, evidence.Vantage, checks.Finding) {
	f := checks.Finding{
		Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"),
		Reason:  rapid.SampledFrom([]checks.Reason{checks.ReasonConnectRefused, checks.ReasonTLSFailed, checks.ReasonStatus}).Draw(t, "reason"),
	}
	return rapid.SampledFrom([]string{"lb/http", "lb/http-1"}).Draw(t, "check"), rapid.SampledFrom(outsideVantages).Draw(t, "vantage"), f
}

var locals = []checks.LocalLook{"", "", checks.LocalAnswered, checks.LocalRefused, checks.LocalUnanswered, checks.LocalAccepted}

func drawInside(t *rapid.T) (string, evidence.Vantage, checks.Finding) {
	f := checks.Finding{Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"), Suspicious: rapid.Bool().Draw(t, "suspicious")}
	spans := []time.Duration{0, 200 * time.Millisecond, 3 * time.Second, 20 * time.Second}
	span := rapid.SampledFrom(spans).Draw(t, "span")
	if rapid.Bool().Draw(t, "port") {
		f.Listener = &checks.ListenerFacts{
			Listener: "tcp 192.0.2.1:443", Listening: rapid.Bool().Draw(t, "listening"), EverListening: true, AbsentDumps: 3, AbsentFor: span,
			Held: rapid.Bool().Draw(t, "held"), MainAlive: true, Local: rapid.SampledFrom(locals).Draw(t, "local"), LocalFails: 3, LocalFor: span,
			QueueDumps: 3, QueueFor: span, Queue: 3, ForeignLooks: rapid.IntRange(0, 2).Draw(t, "foreign looks"), LostShare: rapid.SampledFrom([]float64{0.5, 1}).Draw(t, "share"), ForeignFor: span,
		}
		return "lb/port", agent, f
	}
	f.Workers = &checks.WorkerFacts{
		Main:       checks.Process{PID: 100, State: rapid.SampledFrom(mainStates).Draw(t, "main"), Age: time.Minute},
		Generation: rapid.SampledFrom([]string{"100.1", "200.2"}).Draw(t, "generation"),
		Serving:    rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(t, "serving"), LivingWorkers: rapid.IntRange(0, 4).Draw(t, "living"),
		EverServed: rapid.Bool().Draw(t, "served"), NoneLooks: 2, NoneFor: span, NoBirthFor: span, MainGoneFor: span,
		Chain: rapid.IntRange(0, 3).Draw(t, "chain"), ChainFor: span, Died: 3, Local: rapid.SampledFrom(locals).Draw(t, "local"), LocalFails: 3, LocalFor: span,
		Frozen: rapid.IntRange(0, 4).Draw(t, "frozen"), FrozenFor: span, Spinning: rapid.IntRange(0, 4).Draw(t, "spinning"), SpinningFor: 2 * span,
		LoopingSlots: rapid.IntRange(0, 1).Draw(t, "looping"), OnDemand: rapid.Bool().Draw(t, "on demand"), Stopping: rapid.IntRange(0, 3).Draw(t, "stopping") == 0,
		StoppingFor: rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Minute}).Draw(t, "stopping for"), MainDeaths: rapid.IntRange(0, 2).Draw(t, "main deaths"), FDsExhausted: rapid.IntRange(0, 1).Draw(t, "fds"),
	}
	f.Workers.Main.StoppedFor = span
	return "lb/workers", agent, f
}

// drawHistory draws evidence in the order of its arrival.
func drawHistory(t *rapid.T, most int) []evidence.Stored {
	n := numbering{}
	at := start
	var out []evidence.Stored
	for range rapid.IntRange(1, most).Draw(t, "pieces") {
		at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 50, 1000, 1500, 6000}).Draw(t, "pause")) * time.Millisecond)
		draw := drawOutside
		if rapid.Bool().Draw(t, "inside") {
			draw = drawInside
		}
		check, v, f := draw(t)
		s := n.stored(check, v, rapid.SampledFrom([]string{"boot-1", "boot-1", "boot-1", "boot-2"}).Draw(t, "boot"), at, f)
		s.Waited = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 300, 9000}).Draw(t, "waited")) * time.Millisecond
		out = append(out, s)
	}
	return out
}

func newJudge(t rapid.TB) *correlate.Judge {
	t.Helper()
	j, err := correlate.New(world())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// told is all that a judge says of a history, and of the minute after it.
type told struct {
	Changes []correlate.Change
	States  []correlate.State
	Asks    []correlate.Ask
}

func (o *told) hear(j *correlate.Judge, changes []correlate.Change) {
	o.Changes = append(o.Changes, changes...)
	o.Asks = append(o.Asks, j.Asks()...)
}

func judge(t rapid.TB, history []evidence.Stored) told {
	j := newJudge(t)
	var out told
	for _, e := range history {
		out.hear(j, j.Observe(e, e.At))
	}
	out.hear(j, j.Advance(j.Now().Add(time.Minute)))
	out.States = j.States()
	return out
}

func encoded(t rapid.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestProperty_ReplayGivesTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 40)
		first, second := judge(t, history), judge(t, history)
		if a, b := encoded(t, first), encoded(t, second); !bytes.Equal(a, b) {
			t.Fatalf("two replays of the same evidence differ:\n%s\n%s", a, b)
		}
	})
}

func TestProperty_DuplicatesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 25)
		want := judge(t, history)
		j := newJudge(t)
		var got told
		for i, e := range history {
			got.hear(j, j.Observe(e, e.At))
			for range rapid.IntRange(0, 2).Draw(t, "redelivered") {
				again := history[rapid.IntRange(0, i).Draw(t, "which")]
				if rapid.Bool().Draw(t, "stored anew") {
					again.At = e.At
				}
				got.hear(j, j.Observe(again, e.At))
			}
		}
		got.hear(j, j.Advance(j.Now().Add(time.Minute)))
		got.States = j.States()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("with duplicates (-without +with):\n%s", diff)
		}
	})
}

func TestProperty_AdvanceInOneStepOrMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 25)
		want := judge(t, history)
		j := newJudge(t)
		var got told
		advance := func(to time.Time) {
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				if left := to.Sub(j.Now()); !j.Now().IsZero() && left > 0 {
					got.hear(j, j.Advance(j.Now().Add(time.Duration(rapid.Int64Range(0, int64(left)).Draw(t, "step")))))
				}
			}
		}
		for _, e := range history {
			advance(e.At)
			got.hear(j, j.Observe(e, e.At))
		}
		end := j.Now().Add(time.Minute)
		advance(end)
		got.hear(j, j.Advance(end))
		got.States = j.States()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("advancing in many steps (-one +many):\n%s", diff)
		}
	})
}

// TestProperty_BlindNeverVotes adds vantages that are always blind, at places
// that vote and at places that do not.
func TestProperty_BlindNeverVotes(t *testing.T) {
	type word struct {
		At    time.Time
		State correlate.State
	}
	words := func(changes []correlate.Change) []word {
		var out []word
		for _, c := range changes {
			c.To.Evidence = nil // blind looks are shown, with what they are
			out = append(out, word{c.At, c.To})
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 25)
		want := judge(t, history)
		j, n := newJudge(t), numbering{}
		var got told
		for _, e := range history {
			got.hear(j, j.Observe(e, e.At))
			if rapid.Bool().Draw(t, "blind") {
				v := evidence.Vantage{Place: rapid.SampledFrom([]string{"a", "d", "elsewhere"}).Draw(t, "place"), Name: "blind"}
				check := rapid.SampledFrom([]string{"lb/http", "lb/http-1"}).Draw(t, "check")
				got.hear(j, j.Observe(n.stored(check, v, "boot-1", e.At, checks.BlindFinding(checks.ReasonOwnNetwork, "")), e.At))
			}
		}
		got.hear(j, j.Advance(j.Now().Add(time.Minute)))
		if diff := cmp.Diff(words(want.Changes), words(got.Changes)); diff != "" {
			t.Fatalf("with blind vantages (-without +with):\n%s", diff)
		}
	})
}

func TestProperty_AllBlindIsNeitherUpNorBad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 25)
		j := newJudge(t)
		for _, e := range history {
			j.Observe(e, e.At)
		}
		now, n := j.Now(), numbering{}
		blind := checks.BlindFinding(checks.ReasonShuttingDown, "")
		for _, v := range outsideVantages {
			for _, c := range []string{"lb/http", "lb/http-1"} {
				j.Observe(n.stored(c, v, "boot-3", now, blind), now)
			}
		}
		for _, c := range []string{"lb/workers", "lb/port"} {
			j.Observe(n.stored(c, agent, "boot-3", now, blind), now)
		}
		if v := j.States()[0].Verdict; v != correlate.Unknown {
			t.Fatalf("everybody is blind: got %s, want unknown", v)
		}
	})
}

// health orders verdicts from the worst.
func health(v correlate.Verdict) int {
	return slices.Index([]correlate.Verdict{correlate.Down, correlate.Degraded, correlate.Unknown, correlate.Up}, v)
}

func TestProperty_OneMoreFailNeverBettersAVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t, 40)
		j := newJudge(t)
		n := numbering{}
		for _, e := range history {
			if e.Boot != "boot-1" {
				continue
			}
			j.Observe(e, e.At)
			n[e.Vantage.String()+"boot-1"] = e.Seq
		}
		now := j.Now().Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "later")) * time.Millisecond)
		j.Advance(now)
		before := j.States()[0]
		check, v, f := drawOutside(t)
		f.Outcome = checks.Fail
		j.Observe(n.stored(check, v, "boot-1", now, f), now)
		if after := j.States()[0]; health(after.Verdict) > health(before.Verdict) {
			t.Fatalf("a failing look of %s at %s made it %s; it was %s\nbefore %+v\nafter  %+v", v, check, after.Verdict, before.Verdict, before, after)
		}
	})
}

// TestProperty_OrderWithinTheLastStepDoesNotMatter holds where the design claims
// it: everybody who can look does, in rounds; the outside of the last round is of
// one mind, and what the inside shows in it decides without its past. The README
// says what is outside the claim.
func TestProperty_OrderWithinTheLastStepDoesNotMatter(t *testing.T) {
	insides := map[string][2]checks.Finding{
		"healthy": {
			{Outcome: checks.Pass, Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", Serving: 4, LivingWorkers: 4, EverServed: true}},
			{Outcome: checks.Pass, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true}},
		},
		"crash loop": {
			{Outcome: checks.Fail, Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", EverServed: true, NoneLooks: 9, NoneFor: time.Second, Chain: 3, ChainFor: time.Second, Died: 12}},
			{Outcome: checks.Fail, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", EverListening: true, AbsentDumps: 9, AbsentFor: 900 * time.Millisecond, MainAlive: true}},
		},
		"port shut": {
			{Outcome: checks.Pass, Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", Serving: 4, LivingWorkers: 4, EverServed: true}},
			{Outcome: checks.Fail, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", EverListening: true, Held: true, AbsentDumps: 9, AbsentFor: time.Second, MainAlive: true, Local: checks.LocalRefused}},
		},
		"frozen": {
			{Outcome: checks.Fail, Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", EverServed: true, LivingWorkers: 4, Frozen: 4, FrozenFor: time.Second, NoneLooks: 9, NoneFor: time.Second, Local: checks.LocalUnanswered}},
			{Outcome: checks.Pass, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true}},
		},
		"main dead": {
			{Outcome: checks.Fail, Workers: &checks.WorkerFacts{Main: checks.Process{State: checks.ProcGone}, Generation: "100.1", EverServed: true, NoneLooks: 9, NoneFor: time.Minute, MainGoneFor: time.Minute}},
			{Outcome: checks.Fail, Listener: &checks.ListenerFacts{Listener: "tcp 192.0.2.1:443", EverListening: true, AbsentDumps: 9, AbsentFor: time.Minute}},
		},
	}
	names := []string{"crash loop", "frozen", "healthy", "main dead", "port shut"}
	voters := outsideVantages[:5]
	rapid.Check(t, func(t *rapid.T) {
		n := numbering{}
		at := start
		round := func(outcome func() checks.Outcome, inside string) []evidence.Stored {
			at = at.Add(time.Second)
			var out []evidence.Stored
			for _, c := range []string{"lb/http", "lb/http-1"} {
				for _, v := range voters {
					out = append(out, n.stored(c, v, "boot-1", at, checks.Finding{Outcome: outcome(), Reason: checks.ReasonConnectRefused}))
				}
			}
			pair := insides[inside]
			return append(out, n.stored("lb/workers", agent, "boot-1", at, pair[0]), n.stored("lb/port", agent, "boot-1", at, pair[1]))
		}
		var history []evidence.Stored
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			history = append(history, round(func() checks.Outcome {
				return rapid.SampledFrom([]checks.Outcome{checks.Pass, checks.Fail}).Draw(t, "outcome")
			}, rapid.SampledFrom(names).Draw(t, "inside"))...)
		}
		mind := rapid.SampledFrom([]checks.Outcome{checks.Pass, checks.Fail}).Draw(t, "mind")
		last := round(func() checks.Outcome { return mind }, rapid.SampledFrom(names).Draw(t, "last inside"))
		final := func(last []evidence.Stored) correlate.State {
			j := newJudge(t)
			for _, e := range slices.Concat(history, last) {
				j.Observe(e, e.At)
			}
			st := j.States()[0]
			st.Evidence, st.Since = nil, time.Time{} // of the moment at which the verdict changed
			st.Effects = nil                         // the outside beside a proof may be confirmed one look later
			return st
		}
		want, got := final(last), final(rapid.Permutation(last).Draw(t, "order"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the order of the last round matters (-one +other):\n%s", diff)
		}
	})
}
