package host

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks"
)

// quiet is an observer of one target whose main is this test, and which nobody
// sweeps.
func quiet(t *testing.T) (*Observer, *target) {
	t.Helper()
	o, err := New(Config{Targets: []Target{{Name: "it", PIDFile: "/nowhere"}}}, Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tt := o.targets[0]
	tt.main, tt.status = &proc{target: tt, pidfd: -1}, MainAlive
	tt.main.view.PID = os.Getpid()
	return o, tt
}

const nobody = maxPID - 1 // no kernel hands it out while others are free

func TestBriefs_OfEachThereIsOneBirthAndOneDeath(t *testing.T) {
	const born, now = 100 * time.Second, 101 * time.Second
	fork := procEvent{kind: procFork, pid: nobody, parent: os.Getpid()}
	exit := procEvent{kind: procExit, pid: nobody, parent: os.Getpid(), status: 7 << 8}
	orphan := exit
	orphan.parent = 0
	birth := Event{Kind: Birth, Process: ID{nobody, 10000}, Born: born, At: born, Brief: true}
	death := Event{Kind: Death, Process: ID{nobody, 10000}, Born: born, At: born + time.Millisecond, Exit: Exit{Known: true, Code: 7}, Brief: true}
	unknown := death
	unknown.At, unknown.Exit = now, Exit{}
	for name, tt := range map[string]struct {
		events []procEvent
		sweeps int
		want   []Event
	}{
		"born and gone":                             {[]procEvent{fork, exit}, 1, []Event{birth, death}},
		"reaped before its end was told":            {[]procEvent{fork, orphan}, 1, []Event{birth, death}},
		"its end is not told yet":                   {[]procEvent{fork}, 1, nil},
		"its end is never told":                     {[]procEvent{fork}, 2, []Event{birth, unknown}},
		"it lives on under another parent":          {[]procEvent{{kind: procFork, pid: 1, parent: os.Getpid()}}, 3, nil},
		"the end of one that we never heard of":     {[]procEvent{exit}, 2, nil},
		"the end of a stranger, reaped before":      {[]procEvent{{kind: procExit, pid: nobody - 1}}, 2, nil},
		"a fork by somebody else":                   {[]procEvent{{kind: procFork, pid: nobody, parent: 1}}, 2, nil},
		"a child that is told of only when it ends": {[]procEvent{exit, fork}, 2, []Event{birth, unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			o, target := quiet(t)
			for i, e := range tt.events {
				target.told(&e, born+time.Duration(i)*time.Millisecond, now)
			}
			if name == "a child that is told of only when it ends" {
				target.briefs[nobody].born = born
			}
			for range tt.sweeps {
				o.settleBriefs(target, now)
			}
			for i := range target.events {
				target.events[i].Seq, target.events[i].Main = 0, ID{}
			}
			if diff := cmp.Diff(tt.want, target.events, cmp.AllowUnexported()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Kernels before 6.15 do not tell a pidfd how its process ended.
func TestDied_TakesTheExitThatTheConnectorTold(t *testing.T) {
	o, target := quiet(t)
	p := &proc{target: target, pidfd: -1, view: Process{ID: ID{nobody, 1}, State: checks.ProcAlive}}
	target.kids[p.view.ID] = p
	ours := target.mustTake(t, procEvent{kind: procExit, pid: nobody, parent: os.Getpid(), status: 9}, 90*time.Second)
	o.died(target, p, nil, 100*time.Second)
	if e := target.events[0]; !ours || e.Kind != Death || e.Exit.String() != "SIGKILL" || e.At != 90*time.Second || e.Brief {
		t.Errorf("event = %+v, want a death by SIGKILL at 90 s", e)
	}
}

func (t *target) mustTake(tb testing.TB, e procEvent, at time.Duration) bool {
	tb.Helper()
	fits, full := t.told(&e, at, at)
	if full {
		tb.Fatal("forgotten")
	}
	return fits
}

func TestBriefs_ReadersAreNotFlooded(t *testing.T) {
	o, target := quiet(t)
	for i := range 1000 {
		target.told(&procEvent{kind: procFork, pid: 1000 + i, parent: os.Getpid()}, time.Second, time.Second)
		target.told(&procEvent{kind: procExit, pid: 1000 + i, parent: os.Getpid()}, time.Second, time.Second)
	}
	o.settleBriefs(target, 2*time.Second)
	if n := o.stats.exits.Load(); n != 1000 || len(target.events) != EventsKept/2 || target.events[len(target.events)-1].Process.PID != 1999 {
		t.Errorf("%d exits counted, %d events kept, the last of %v; want 1000, %d, 1999", n, len(target.events), target.events[len(target.events)-1].Process, EventsKept/2)
	}
}

func TestBriefs_AreBounded(t *testing.T) {
	o, target := quiet(t)
	for i := range briefsKept + 5 {
		o.told(&procEvent{kind: procFork, pid: 1000 + i, parent: os.Getpid()}, time.Second, time.Second)
	}
	if n := len(target.briefs); n != briefsKept || o.stats.connectorLost.Load() != 5 {
		t.Errorf("%d briefs kept, %d lost; want %d, 5", n, o.stats.connectorLost.Load(), briefsKept)
	}
}

// The kernel takes a filter for as many mains as we say, and beyond that
// everything passes.
func TestConnector_FilterFollowsTheMains(t *testing.T) {
	o, first := quiet(t)
	defer Prepare(o)()
	o.openConnector()
	if o.Stats().Connector != ConnectorLive {
		t.Skip("needs the process connector: the tests that need it say so")
	}
	o.targets = nil
	for i := range mainsPerFilter + 1 {
		tt := &target{status: MainAlive, main: &proc{pidfd: -1}, kids: first.kids}
		tt.main.view.PID = 1000000 + i
		o.targets = append(o.targets, tt)
	}
	all := o.targets
	for _, step := range []struct {
		mains int
		all   bool
	}{{0, false}, {1, false}, {mainsPerFilter, false}, {mainsPerFilter + 1, true}, {2, false}, {0, false}} {
		o.targets = all[:step.mains]
		o.aimConnector(time.Second)
		if c := o.connector; c.all != step.all || !step.all && len(c.mains) != step.mains || c.fd < 0 {
			t.Errorf("with %d mains: all %t, %d in the filter, descriptor %d; want %t", step.mains, c.all, len(c.mains), c.fd, step.all)
		}
	}
	if n := o.stats.errors.Load(); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// A dropped connector is taken up again when a filter fits, or after a while.
func TestConnector_ComesBackAfterItWasDropped(t *testing.T) {
	o, _ := quiet(t)
	defer Prepare(o)()
	o.openConnector()
	if o.Stats().Connector != ConnectorLive {
		t.Skip("needs the process connector: the tests that need it say so")
	}
	o.dropConnector(time.Second, "a test")
	if s := o.Stats(); s.Connector != ConnectorDropped || o.connector.fd != -1 {
		t.Fatalf("stats = %+v after the drop", s)
	}
	o.aimConnector(2 * time.Second)
	if s := o.Stats(); s.Connector != ConnectorDropped {
		t.Errorf("stats = %+v a second after a failure, want it dropped still", s)
	}
	o.connector.all = true // it was dropped because everything passed
	o.aimConnector(3 * time.Second)
	if s := o.Stats(); s.Connector != ConnectorLive || len(o.connector.mains) != 1 {
		t.Errorf("stats = %+v, want it live again with one main", s)
	}
}
