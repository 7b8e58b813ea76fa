package inside

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

const ms = time.Millisecond

type one struct {
	snap host.Snapshot
	ok   bool
}

func (o one) Snapshot(string) (host.Snapshot, bool) { return o.snap, o.ok }

func TestFresh_SaysWhyThereIsNothingToJudgeBy(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	snap := host.Snapshot{At: 100 * time.Second, DumpAt: 100 * time.Second}
	denied := snap
	denied.Trouble = host.Trouble{Reason: checks.ReasonNoPermission, Detail: "hidepid"}
	for name, tt := range map[string]struct {
		ctx    context.Context
		from   one
		part   Part
		now    time.Duration
		reason checks.Reason
		detail string
	}{
		"all is well":                 {context.Background(), one{snap, true}, Processes, 101 * time.Second, "", ""},
		"we shut down":                {ended, one{snap, true}, Processes, 101 * time.Second, checks.ReasonShuttingDown, "shutting down"},
		"no look yet":                 {context.Background(), one{}, Processes, 101 * time.Second, checks.ReasonMainUnknown, "not looked yet"},
		"no rights":                   {context.Background(), one{denied, true}, Processes, 101 * time.Second, checks.ReasonNoPermission, "hidepid"},
		"no rights to the other part": {context.Background(), one{denied, true}, Listeners, 101 * time.Second, "", ""},
		"a sweep of long ago":         {context.Background(), one{snap, true}, Processes, 106 * time.Second, checks.ReasonOwnLimit, "last looked 6s ago"},
		"a dump of long ago":          {context.Background(), one{snap, true}, Listeners, 103 * time.Second, checks.ReasonOwnLimit, "last listed sockets 3s ago"},
	} {
		t.Run(name, func(t *testing.T) {
			_, blind, ok := Fresh(tt.ctx, tt.from, "it", tt.part, tt.now)
			if ok != (tt.reason == "") || blind.Reason != tt.reason || !strings.Contains(blind.Detail, tt.detail) || blind.Outcome != checks.Blind {
				t.Errorf("Fresh() = %+v, %t; want %q %q", blind, ok, tt.reason, tt.detail)
			}
		})
	}
}

func TestHost_NamesWhoBurnsTheCPU(t *testing.T) {
	for name, tt := range map[string]struct {
		state  host.HostState
		cgroup string
		want   *checks.HostFacts
	}{
		"nothing":             {host.HostState{CPUPressure: 0.6, Late: time.Second, Burner: "/a"}, "/a", nil},
		"no PSI, and in time": {host.HostState{CPUPressure: -1}, "/a", nil},
		"pressure by another": {host.HostState{CPUPressure: 0.61, Burner: "/b"}, "/a", &checks.HostFacts{CPUPressure: 0.61, Starved: true, Burner: "/b"}},
		"we are late":         {host.HostState{CPUPressure: -1, Late: 1100 * ms, Burner: "/a"}, "/a", &checks.HostFacts{CPUPressure: -1, Late: 1100 * ms, Starved: true, Burner: "/a", BurnerOurs: true}},
		"by the group above":  {host.HostState{CPUPressure: 0.9, Burner: "/a"}, "/a/b", &checks.HostFacts{CPUPressure: 0.9, Starved: true, Burner: "/a", BurnerOurs: true}},
		"by the group below":  {host.HostState{CPUPressure: 0.9, Burner: "/a/b"}, "/a", &checks.HostFacts{CPUPressure: 0.9, Starved: true, Burner: "/a/b", BurnerOurs: true}},
		"by a namesake":       {host.HostState{CPUPressure: 0.9, Burner: "/ab"}, "/a", &checks.HostFacts{CPUPressure: 0.9, Starved: true, Burner: "/ab"}},
		"by nobody known":     {host.HostState{CPUPressure: 0.9}, "/a", &checks.HostFacts{CPUPressure: 0.9, Starved: true}},
		"by the root":         {host.HostState{CPUPressure: 0.9, Burner: "/"}, "/a", &checks.HostFacts{CPUPressure: 0.9, Starved: true, Burner: "/"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Host(&tt.state, tt.cgroup)); diff != "" {
				t.Errorf("Host() (-want +got):\n%s", diff)
			}
		})
	}
}

func listener(queues ...uint32) host.Listener {
	l := host.Listener{Listening: true, Backlog: 128, Sockets: len(queues)}
	for i, q := range queues {
		l.Group = append(l.Group, host.Socket{Inode: uint64(i + 1), Queue: q, Backlog: 128})
	}
	return l
}

func TestQueue_CountsDumpsInWhichNobodyTook(t *testing.T) {
	for name, tt := range map[string]struct {
		sums  []uint32
		every time.Duration
		dumps int
		over  time.Duration
		full  int
	}{
		"empty":                      {[]uint32{0, 0, 0, 0}, 100 * ms, 0, 0, 0},
		"it waits":                   {[]uint32{0, 2, 2, 2}, 100 * ms, 3, 200 * ms, 0},
		"it grows":                   {[]uint32{1, 2, 3, 4}, 100 * ms, 4, 300 * ms, 0},
		"it falls":                   {[]uint32{9, 9, 9, 8}, 100 * ms, 1, 0, 0},
		"it empties in between":      {[]uint32{3, 3, 0, 3}, 100 * ms, 1, 0, 0},
		"dumps too close to compare": {[]uint32{1, 1, 1, 1}, 25 * ms, 1, 0, 0},
		"too full":                   {[]uint32{129, 129, 129, 129}, 100 * ms, 4, 300 * ms, 4},
		"full, and no more":          {[]uint32{128, 128, 128, 128}, 100 * ms, 4, 300 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var q Queue
			for i, n := range tt.sums {
				l := listener(n)
				q.Observe(&l, time.Second+time.Duration(i)*tt.every)
				q.Observe(&l, time.Second+time.Duration(i)*tt.every) // the same dump again
			}
			if q.Dumps() != tt.dumps || q.For() != tt.over || q.Full() != tt.full {
				t.Errorf("%d dumps over %v, %d full; want %d, %v, %d", q.Dumps(), q.For(), q.Full(), tt.dumps, tt.over, tt.full)
			}
		})
	}
}

func TestQueue_TellsTheSocketOfAGroupThatWaits(t *testing.T) {
	var q Queue
	var l host.Listener
	for i, queues := range [][]uint32{{0, 5, 1}, {1, 6, 0}, {0, 6, 1}} {
		l = listener(queues...)
		q.Observe(&l, time.Second+time.Duration(i)*100*ms)
	}
	want := []checks.SocketFacts{{Inode: 1, Backlog: 128}, {Inode: 2, Queue: 6, Backlog: 128, QueueDumps: 3, QueueFor: 200 * ms}, {Inode: 3, Queue: 1, Backlog: 128, QueueDumps: 1}}
	if diff := cmp.Diff(want, q.Group(&l)); diff != "" {
		t.Errorf("Group() (-want +got):\n%s", diff)
	}
	l = listener(0, 0, 0)
	if got := q.Group(&l); got != nil {
		t.Errorf("Group() = %+v of sockets where all is well, want none", got)
	}
}

// A queue that is emptied at least every other dump is never said to wait for 3.
func TestQueue_OneThatIsEmptiedNeverWaits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q Queue
		for i := range rapid.IntRange(1, 50).Draw(rt, "dumps") {
			n := uint32(rapid.IntRange(0, 200).Draw(rt, "queue"))
			if i%2 == 0 {
				n = 0
			}
			l := listener(n)
			q.Observe(&l, time.Second+time.Duration(i)*100*ms)
			if q.Dumps() > 1 || q.For() > 0 {
				rt.Fatalf("waits for %d dumps, %v", q.Dumps(), q.For())
			}
		}
	})
}

func TestOwn_CountsLooksThatGoTheSameBadWay(t *testing.T) {
	o := Own{Looker: local.New(local.Listener{}, local.Deps{})}
	begin := time.Now()
	at := func(i int) *local.Result { return &local.Result{Began: begin.Add(time.Duration(i) * time.Second)} }
	for i, step := range []struct {
		look  int
		is    checks.LocalLook
		fails int
	}{
		{1, checks.LocalUnanswered, 1},
		{1, checks.LocalUnanswered, 1}, // told again
		{2, checks.LocalUnanswered, 2}, // so far
		{2, checks.LocalAnswered, 0},   // in the end
		{3, checks.LocalRefused, 1},
		{4, checks.LocalRefused, 2},
		{5, checks.LocalUnanswered, 1},
		{6, checks.LocalFailed, 0},   // may be our own fault
		{7, checks.LocalAccepted, 0}, // it never answered us: it may speak otherwise
	} {
		o.take(at(step.look), step.is)
		if o.now.fails != step.fails {
			t.Errorf("step %d: %s: %d fails, want %d", i, step.is, o.now.fails, step.fails)
		}
	}
	o.Rest()
	if o.Failing() || o.Needed() {
		t.Error("it fails, or is needed, after a rest")
	}
}

func TestOwn_ADumpTellsWhereTheKernelDoesNot(t *testing.T) {
	srv, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	addr := netip.MustParseAddrPort(srv.Addr().String())
	o := Own{Looker: local.New(local.Listener{Addr: addr}, local.Deps{})}
	l := host.Listener{Listening: true, Queue: 1}
	now := 100 * time.Second
	ask := local.Ask{Every: time.Hour}
	o.Look(time.Now(), ask, &l, now, now)
	o.Looker.Wait()
	if a, _ := o.Look(time.Now(), ask, &l, now, now+time.Second); a.Look != "" {
		t.Errorf("%+v before a dump after it, want none yet", a)
	}
	if a, _ := o.Look(time.Now(), ask, &l, now+time.Minute, now+time.Minute); a.Look != checks.LocalUnanswered || a.Fails != 1 || a.For <= 0 {
		t.Errorf("%+v with one in the queue, want unanswered, 1", a)
	}
	o.Rest()
	l.Queue = 0
	o.Look(time.Now(), ask, &l, now, now)
	o.Looker.Wait()
	if a, _ := o.Look(time.Now(), ask, &l, now+time.Minute, now+time.Minute); a.Look != checks.LocalAccepted {
		t.Errorf("%+v with an empty queue, want accepted", a)
	}
}

func TestOwn_AResetByOneWhoGoesOnListeningWasTaken(t *testing.T) {
	ended := 100 * time.Second
	for name, tt := range map[string]struct {
		listening bool
		dumped    time.Duration
		want      checks.LocalLook
	}{
		"it listens still": {true, ended + ms, checks.LocalAccepted},
		"no dump since":    {true, ended, ""},
		"it is gone":       {false, ended + ms, checks.LocalFailed},
	} {
		r := local.Result{Look: checks.LocalFailed, Reset: true}
		if got, told := settle(&r, &host.Listener{Listening: tt.listening}, tt.dumped, ended); got != tt.want || told != (tt.want != "") {
			t.Errorf("%s: settle() = %q, %t; want %q", name, got, told, tt.want)
		}
	}
}
