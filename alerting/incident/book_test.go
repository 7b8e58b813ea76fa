package incident_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
)

var start = time.Date(2026, 8, 27, 15, 55, 0, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func services() policy.Policy {
	return policy.Policy{Services: []policy.Service{
		{Name: "lb", Region: "par", CloseAfter: 3 * time.Second}, {Name: "www", Region: "par", CloseAfter: 10 * time.Second}, {Name: "slow", Region: "par"},
	}}
}

// state returns a state of a service; edit changes it.
func state(service string, v correlate.Verdict, edit ...func(*correlate.State)) correlate.State {
	st := correlate.State{Verdict: v, Scope: correlate.Scope{Service: service, Region: "par"}}
	if v.Bad() {
		st.Cause, st.Rule, st.Certainty, st.Page, st.Onset = correlate.CauseWorkersCrashLooping, "P1", correlate.Certain, true, at(-1)
		st.Evidence = []correlate.Ref{{Check: service + "/workers", Vantage: "agent", Boot: "boot-1", Seq: 7}}
	}
	for _, e := range edit {
		e(&st)
	}
	return st
}

func ticket(st *correlate.State) { st.Page = false }
func cause(c correlate.Cause) func(*correlate.State) {
	return func(st *correlate.State) { st.Cause = c }
}
func effects(c ...correlate.Cause) func(*correlate.State) {
	return func(st *correlate.State) { st.Effects = c }
}
func seenBy(failing int) func(*correlate.State) {
	return func(st *correlate.State) { st.Tally.Failing = failing }
}
func certainty(c correlate.Certainty) func(*correlate.State) {
	return func(st *correlate.State) { st.Certainty = c }
}
func scopedTo(instance string) func(*correlate.State) {
	return func(st *correlate.State) { st.Scope.Instance = instance }
}
func evidenceIs(seq uint64, boot string) func(*correlate.State) {
	return func(st *correlate.State) { st.Evidence[0].Seq, st.Evidence[0].Boot = seq, boot }
}

// one fails the test unless there is exactly one step of the kind.
func one(t *testing.T, steps []incident.Step, kind incident.StepKind) incident.Step {
	t.Helper()
	if len(steps) != 1 || steps[0].Kind != kind {
		t.Fatalf("steps: got %+v, want one that is %s", steps, kind)
	}
	return steps[0]
}

func none(t *testing.T, what string, steps []incident.Step) {
	t.Helper()
	if len(steps) != 0 {
		t.Fatalf("%s: got %+v, want no step", what, steps)
	}
}

func TestID_IsAFunctionOfServiceOnsetAndEvidence(t *testing.T) {
	base := incident.ID(state("lb", correlate.Down), at(0))
	if again := incident.ID(state("lb", correlate.Down), at(0)); again != base {
		t.Errorf("the same evidence twice: got %s and %s", base, again)
	}
	if !strings.HasPrefix(base, "lb-20260827-") || len(base) != len("lb-20260827-")+8 {
		t.Errorf("id: got %q, want service, day and eight digits", base)
	}
	for name, other := range map[string]string{
		"another service":  incident.ID(state("www", correlate.Down), at(0)),
		"another onset":    incident.ID(state("lb", correlate.Down), at(0.000001)),
		"another sequence": incident.ID(state("lb", correlate.Down, evidenceIs(8, "boot-1")), at(0)),
		"another boot":     incident.ID(state("lb", correlate.Down, evidenceIs(7, "boot-2")), at(0)),
	} {
		if other == base {
			t.Errorf("%s: got the same id %s", name, base)
		}
	}
	if same := incident.ID(state("lb", correlate.Down, cause(correlate.CausePortUnbound)), at(0)); same != base {
		t.Errorf("another opinion on the same evidence: got %s, want %s", same, base)
	}
}

func TestObserve_OneIncidentPerService(t *testing.T) {
	b := incident.NewBook(services())
	opened := one(t, b.Observe(state("lb", correlate.Down), at(0)), incident.Opened)
	want := incident.Step{
		Incident: opened.Incident, N: 1, Kind: incident.Opened, At: at(0), OpenedAt: at(0), Onset: at(-1), Cause: correlate.CauseWorkersCrashLooping,
		Severities: []incident.Severity{incident.Page}, Reason: "first proof", State: state("lb", correlate.Down),
	}
	if diff := cmp.Diff(want, opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	none(t, "the same again", b.Observe(state("lb", correlate.Down), at(1)))
	other := one(t, b.Observe(state("www", correlate.Down), at(1)), incident.Opened)
	if other.Incident == opened.Incident {
		t.Errorf("two services share the incident %s", other.Incident)
	}
	updated := one(t, b.Observe(state("lb", correlate.Down, cause(correlate.CausePortUnbound), scopedTo("lb-1")), at(2)), incident.Updated)
	if updated.Incident != opened.Incident || updated.N != 2 || !updated.OpenedAt.Equal(at(0)) || !updated.Onset.Equal(at(-1)) {
		t.Errorf("updated: got %+v, want step 2 of %s with its times", updated, opened.Incident)
	}
	if open := b.Open(); len(open) != 2 || open[0].State.Scope.Service != "lb" || open[1].State.Scope.Service != "www" {
		t.Errorf("open: got %+v, want lb and www", open)
	}
}

func TestObserve_OnsetIsNeverInTheFuture(t *testing.T) {
	for name, onset := range map[string]time.Time{"missing": {}, "later than now": at(5)} {
		s := one(t, incident.NewBook(services()).Observe(state("lb", correlate.Down, func(st *correlate.State) { st.Onset = onset }), at(0)), incident.Opened)
		if !s.Onset.Equal(at(0)) {
			t.Errorf("onset %s: got %s, want now", name, s.Onset)
		}
	}
}

func TestObserve_SaysWhatIsNew(t *testing.T) {
	old := []func(*correlate.State){effects(correlate.CauseConnectFailing)}
	for _, row := range []struct {
		name string
		next correlate.State
		want string // empty: no step
	}{
		{"nothing", state("lb", correlate.Degraded, old...), ""},
		{"only the counters in the sentence", state("lb", correlate.Degraded, old[0], func(st *correlate.State) { st.Sentence = "41 died" }), ""},
		{"the verdict", state("lb", correlate.Down, old...), "degraded is now down"},
		{"the cause", state("lb", correlate.Degraded, old[0], cause(correlate.CausePortUnbound)), "the cause became clearer"},
		{"only an effect is left", state("lb", correlate.Degraded, cause(correlate.CauseConnectFailing)), "workers_crash_looping is over, connect_failing remains"},
		{"the scope", state("lb", correlate.Degraded, old[0], scopedTo("lb-1")), "the scope changed"},
		{"the effects", state("lb", correlate.Degraded), "more is known"},
		{"the certainty", state("lb", correlate.Degraded, old[0], certainty(correlate.Suspected)), "more is known"},
		{"the because", state("lb", correlate.Degraded, old[0], func(st *correlate.State) { st.Because = correlate.CauseOOMKilled }), "more is known"},
		{"customers see it", state("lb", correlate.Degraded, old[0], seenBy(1)), "what customers see changed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := incident.NewBook(services())
			one(t, b.Observe(state("lb", correlate.Degraded, old...), at(0)), incident.Opened)
			steps := b.Observe(row.next, at(1))
			if row.want == "" {
				none(t, row.name, steps)
				return
			}
			if s := one(t, steps, incident.Updated); s.Reason != row.want {
				t.Errorf("reason: got %q, want %q", s.Reason, row.want)
			}
		})
	}
}

func TestObserve_ACauseIsReplacedByAClearerOneOnly(t *testing.T) {
	b := incident.NewBook(services())
	first := one(t, b.Observe(state("lb", correlate.Down, cause(correlate.CauseHTTPFailing)), at(0)), incident.Opened)
	proven := state("lb", correlate.Down, cause(correlate.CauseWorkersCrashLooping))
	proven.Effects = []correlate.Cause{correlate.CauseHTTPFailing}
	clearer := one(t, b.Observe(proven, at(1)), incident.Updated)
	rest := one(t, b.Observe(state("lb", correlate.Down, cause(correlate.CauseHTTPFailing)), at(2)), incident.Updated)
	if first.Cause != correlate.CauseHTTPFailing || clearer.Cause != correlate.CauseWorkersCrashLooping || rest.Cause != correlate.CauseWorkersCrashLooping {
		t.Errorf("got causes %s, %s, %s; want http_failing, then workers_crash_looping, which its aftermath does not replace", first.Cause, clearer.Cause, rest.Cause)
	}
}

func TestObserve_SeverityOnlyRises(t *testing.T) {
	b := incident.NewBook(services())
	opened := one(t, b.Observe(state("lb", correlate.Degraded, ticket), at(0)), incident.Opened)
	page := one(t, b.Observe(state("lb", correlate.Degraded), at(1)), incident.Updated)
	lower := one(t, b.Observe(state("lb", correlate.Degraded, ticket, cause(correlate.CauseMainDead)), at(2)), incident.Updated)
	none(t, "a ticket again", b.Observe(state("lb", correlate.Degraded, ticket, cause(correlate.CauseMainDead)), at(3)))
	b.Observe(state("lb", correlate.Up), at(4))
	closed := one(t, b.Advance(at(7)), incident.Closed)
	type row struct {
		reason     string
		severities []incident.Severity
	}
	both := []incident.Severity{incident.Ticket, incident.Page}
	want := []row{{"first proof", both[:1]}, {"severity rose", both}, {"the cause became clearer", both}, {"good for 3s", both}}
	for i, s := range []incident.Step{opened, page, lower, closed} {
		if diff := cmp.Diff(want[i], row{s.Reason, s.Severities}, cmp.AllowUnexported(row{})); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", s.N, diff)
		}
	}
}

func TestAdvance_ClosesAtTheDeadline(t *testing.T) {
	b := incident.NewBook(services())
	opened := one(t, b.Observe(state("lb", correlate.Down), at(0)), incident.Opened)
	if due, ok := b.NextDeadline(); ok {
		t.Errorf("NextDeadline while it is down: got %s, want none", due)
	}
	none(t, "up", b.Observe(state("lb", correlate.Up), at(10)))
	none(t, "up again", b.Observe(state("lb", correlate.Up), at(12)))
	if due, ok := b.NextDeadline(); !ok || !due.Equal(at(13)) {
		t.Errorf("NextDeadline: got %s (%t), want %s", due, ok, at(13))
	}
	none(t, "just before", b.Advance(at(12.999)))
	closed := one(t, b.Advance(at(20)), incident.Closed)
	if closed.Incident != opened.Incident || closed.N != 2 || !closed.At.Equal(at(13)) || closed.State.Verdict != correlate.Up {
		t.Errorf("closed: got %+v, want step 2 of %s at its deadline, up", closed, opened.Incident)
	}
	if want := "lb par UP again since 15:55:10: it was workers_crash_looping for 11s"; closed.State.Sentence != want {
		t.Errorf("sentence: got %q, want %q", closed.State.Sentence, want)
	}
	none(t, "closed already", b.Advance(at(30)))
	next := one(t, b.Observe(state("lb", correlate.Down, evidenceIs(99, "boot-1")), at(40)), incident.Opened)
	if next.Incident == opened.Incident || next.N != 1 {
		t.Errorf("the next incident: got %s step %d, want another, step 1", next.Incident, next.N)
	}
}

func TestAdvance_ClosesInTheOrderOfTheDeadlines(t *testing.T) {
	b := incident.NewBook(services())
	for _, s := range []string{"lb", "slow", "www"} {
		b.Observe(state(s, correlate.Down), at(0))
	}
	b.Observe(state("www", correlate.Up), at(1)) // due at 11
	b.Observe(state("lb", correlate.Up), at(20)) // due at 23
	b.Observe(state("slow", correlate.Up), at(21))
	var got []string
	for _, s := range b.Advance(at(81)) {
		got = append(got, s.State.Scope.Service)
	}
	if diff := cmp.Diff([]string{"www", "lb", "slow"}, got); diff != "" {
		t.Errorf("order of closing (-want +got):\n%s", diff)
	}
}

func TestAdvance_CountdownBeginsAnew(t *testing.T) {
	for _, row := range []struct {
		name      string
		interrupt correlate.State
		step      string // reason of the step it leads to; empty for none
	}{
		{"on unknown", state("lb", correlate.Unknown), ""},
		{"on a relapse", state("lb", correlate.Down), "failing again before it closed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := incident.NewBook(services())
			opened := one(t, b.Observe(state("lb", correlate.Down), at(0)), incident.Opened)
			b.Observe(state("lb", correlate.Up), at(1))
			steps := b.Observe(row.interrupt, at(3.9))
			if row.step == "" {
				none(t, row.name, steps)
			} else if s := one(t, steps, incident.Updated); s.Reason != row.step || s.Incident != opened.Incident {
				t.Errorf("step: got %q of %s, want %q of %s", s.Reason, s.Incident, row.step, opened.Incident)
			}
			none(t, "past the old deadline", b.Advance(at(5)))
			b.Observe(state("lb", correlate.Up), at(10))
			none(t, "before the new deadline", b.Advance(at(12.9)))
			if s := one(t, b.Advance(at(13)), incident.Closed); !s.At.Equal(at(13)) {
				t.Errorf("closed at %s, want %s", s.At, at(13))
			}
		})
	}
}

// TestFold_RestartIsIdempotent cuts a story after every step, writes what was
// recorded as JSON, reads it into a new book and goes on.
func TestFold_RestartIsIdempotent(t *testing.T) {
	story := []correlate.State{
		state("lb", correlate.Degraded, ticket), state("lb", correlate.Down), state("lb", correlate.Down, effects(correlate.CausePortUnbound)),
		state("lb", correlate.Up), state("lb", correlate.Down, effects(correlate.CausePortUnbound)), state("lb", correlate.Up),
	}
	for cut := 1; cut <= len(story); cut++ {
		b := incident.NewBook(services())
		var journal []incident.Step
		for i, st := range story[:cut] {
			journal = append(journal, b.Observe(st, at(float64(i)))...)
		}
		encoded, err := json.Marshal(journal)
		if err != nil {
			t.Fatal(err)
		}
		var recorded []incident.Step
		if err := json.Unmarshal(encoded, &recorded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(journal, recorded); diff != "" {
			t.Errorf("a step does not survive the journal (-written +read):\n%s", diff)
		}
		after := incident.NewBook(services())
		for _, s := range recorded {
			after.Fold(s)
		}
		if diff := cmp.Diff(b.Open(), after.Open()); diff != "" {
			t.Errorf("after %d states (-before +after the restart):\n%s", cut, diff)
		}
		none(t, "the current state told again", after.Observe(story[cut-1], at(50)))
		none(t, "and again", after.Observe(story[cut-1], at(51)))
		after.Observe(state("lb", correlate.Up), at(52))
		closed := one(t, after.Advance(at(60)), incident.Closed)
		if last := journal[len(journal)-1]; closed.Incident != last.Incident || closed.N != last.N+1 {
			t.Errorf("closed: got %s step %d, want %s step %d", closed.Incident, closed.N, last.Incident, last.N+1)
		}
		after.Fold(closed)
		if open := after.Open(); len(open) != 0 {
			t.Errorf("after the closing step was folded: got %+v, want nothing open", open)
		}
	}
}

func TestRetire_ClosesWhatThePolicyNoLongerHas(t *testing.T) {
	before := incident.NewBook(services())
	opened := one(t, before.Observe(state("www", correlate.Down), at(0)), incident.Opened)
	kept := one(t, before.Observe(state("lb", correlate.Down), at(0)), incident.Opened)
	after := incident.NewBook(policy.Policy{Services: services().Services[:1]})
	after.Fold(opened)
	after.Fold(kept)
	closed := one(t, after.Retire(at(5)), incident.Closed)
	if closed.Incident != opened.Incident || closed.State.Verdict != correlate.Unknown || !strings.Contains(closed.State.Sentence, "no longer watched") {
		t.Errorf("retired: got %+v, want %s closed as unknown", closed, opened.Incident)
	}
	none(t, "retired already", after.Retire(at(6)))
}

func TestRetire_KeepsWhatTheConfigurationRefused(t *testing.T) {
	p := services()
	b := incident.NewBook(p)
	opened := one(t, b.Observe(state("lb", correlate.Down), at(0)), incident.Opened)
	p.Services, p.Refused = nil, []string{"lb"}
	again := incident.NewBook(p)
	again.Fold(opened)
	none(t, "a service refused for a typo is not over", again.Retire(at(10)))
	if open := again.Open(); len(open) != 1 || open[0].Incident != opened.Incident {
		t.Errorf("open: got %+v, want %s", open, opened.Incident)
	}
}

func TestObserve_AProofThatAlsoWorsensTheVerdictReplacesTheCause(t *testing.T) {
	b := incident.NewBook(services())
	one(t, b.Observe(state("lb", correlate.Degraded, cause(correlate.CauseHTTPFailing)), at(0)), incident.Opened)
	s := one(t, b.Observe(state("lb", correlate.Down, cause(correlate.CauseWorkersCrashLooping), effects(correlate.CauseHTTPFailing)), at(1)), incident.Updated)
	if s.Reason != "degraded is now down" || s.Cause != correlate.CauseWorkersCrashLooping {
		t.Errorf("got reason %q, cause %s; want the new verdict and workers_crash_looping", s.Reason, s.Cause)
	}
}

// A root that was proven later, and held for an effect meanwhile, takes over if it
// explains the cause we had; not if it only lasts longer.
func TestObserve_AnEffectThatTurnsOutToBeTheRootTakesOver(t *testing.T) {
	for name, tt := range map[string]struct {
		effects []correlate.Cause
		want    correlate.Cause
	}{
		"it explains the loop":    {[]correlate.Cause{correlate.CauseWorkersCrashLooping}, correlate.CausePortUnbound},
		"it outlives the loop":    {nil, correlate.CauseWorkersCrashLooping},
		"it explains another one": {[]correlate.Cause{correlate.CauseHTTPFailing}, correlate.CauseWorkersCrashLooping},
	} {
		t.Run(name, func(t *testing.T) {
			b := incident.NewBook(services())
			loop := state("lb", correlate.Down, cause(correlate.CauseWorkersCrashLooping))
			loop.Effects = []correlate.Cause{correlate.CausePortUnbound}
			one(t, b.Observe(loop, at(0)), incident.Opened)
			port := state("lb", correlate.Down, cause(correlate.CausePortUnbound))
			port.Effects = tt.effects
			if got := one(t, b.Observe(port, at(1)), incident.Updated); got.Cause != tt.want {
				t.Errorf("cause: got %s, want %s", got.Cause, tt.want)
			}
		})
	}
}
