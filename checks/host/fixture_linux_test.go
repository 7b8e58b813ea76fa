package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks"
)

// world is a /proc tree, a clock and a kernel's list of LISTEN sockets.
type world struct {
	t       *testing.T
	root    string
	pidFile string
	now     time.Duration
	sockets []socket
	dumpErr error
	o       *Observer
}

var port = netip.MustParseAddrPort("127.0.0.1:18765")

// newWorld lays out a recorded tree ("path: content" and "path -> link") and
// makes an observer of it that nothing runs.
func newWorld(t *testing.T, tree string, target Target) *world {
	t.Helper()
	w := &world{t: t, root: t.TempDir(), now: 3000 * time.Second}
	b, err := os.ReadFile(filepath.Join("testdata", tree))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if path, to, ok := strings.Cut(line, " -> "); ok {
			w.link(path, to)
		} else if path, content, ok := strings.Cut(line, ": "); ok {
			w.write(path, content+"\n")
		} else if path, ok := strings.CutSuffix(line, ":"); ok {
			w.write(path, "")
		}
	}
	w.pidFile = filepath.Join(t.TempDir(), "pid")
	if target.PIDFile == "" && !target.Port.IsValid() {
		target.PIDFile = w.pidFile
	}
	target.Name = "it"
	if w.o, err = New(Config{Targets: []Target{target}}, Deps{Root: w.root}); err != nil {
		t.Fatal(err)
	}
	w.o.kernel.now = func() time.Duration { w.now++; return w.now }
	w.o.kernel.listening = func() ([]socket, error) { return w.sockets, w.dumpErr }
	return w
}

func (w *world) write(path, content string) {
	w.t.Helper()
	path = filepath.Join(w.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) link(path, to string) {
	w.t.Helper()
	path = filepath.Join(w.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	os.Remove(path)
	if err := os.Symlink(to, path); err != nil {
		w.t.Fatal(err)
	}
}

// edit replaces a text in a file that must hold it.
func (w *world) edit(path, old, with string) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.root, path))
	if err != nil || !strings.Contains(string(b), old) {
		w.t.Fatalf("%s: no %q in %q, %v", path, old, b, err)
	}
	w.write(path, strings.Replace(string(b), old, with, 1))
}

func (w *world) exit(pid int) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.root, fmt.Sprint(pid))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pid(content string) {
	w.t.Helper()
	if err := os.WriteFile(w.pidFile, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// step lets time pass and does what is due.
func (w *world) step(after time.Duration) Snapshot {
	w.t.Helper()
	w.now += after
	w.o.work()
	s, ok := w.o.Snapshot("it")
	if !ok {
		w.t.Fatal("no snapshot after a sweep")
	}
	return s
}

func listenOn(addr string, inode uint64) socket {
	return socket{addr: netip.MustParseAddrPort(addr), inode: inode, queue: 2, backlog: 511}
}

// nginxWorld is main 28421, workers 28422 and 28423, cache helpers 28424 and 28426.
func nginxWorld(t *testing.T) *world {
	w := newWorld(t, "nginx.tree", Target{Listeners: []netip.AddrPort{port}})
	w.sockets = []socket{listenOn("127.0.0.1:18765", 147792)}
	w.pid("28421\n")
	return w
}

func kinds(s Snapshot) (out []EventKind) {
	for _, e := range s.Events {
		out = append(out, e.Kind)
	}
	return out
}

func TestSweep_ReadsARecordedNginx(t *testing.T) {
	s := nginxWorld(t).step(0)
	type row struct {
		PID     int
		Listens bool
		Age     time.Duration
	}
	var got []row
	for _, p := range append([]Process{s.Main.Process}, s.Workers...) {
		got = append(got, row{p.PID, p.Listens, p.Age.Round(tick)})
	}
	want := []row{{28421, true, 863550 * time.Millisecond}, {28422, true, 863550 * time.Millisecond}, {28423, true, 863550 * time.Millisecond},
		{28424, false, 863550 * time.Millisecond}, {28426, false, 863540 * time.Millisecond}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	l := s.Listeners[0]
	if !l.Listening || l.Queue != 2 || l.Backlog != 511 || len(l.Owners) != 3 || l.Owners[0].Role != checks.RoleMain || l.Owners[1].Role != checks.RoleWorker {
		t.Errorf("listener = %+v, want queue 2 of 511, held by main and 2 workers", l)
	}
	if s.Main.Status != MainAlive || s.Main.Process.Exe != "/usr/sbin/nginx" || s.Main.Reaped {
		t.Errorf("main = %+v, want alive, /usr/sbin/nginx, nothing reaped", s.Main)
	}
}

func TestSweep_MainByPort(t *testing.T) {
	t.Run("the parent of the only owner, when it runs the same program", func(t *testing.T) {
		w := newWorld(t, "worker-owns.tree", Target{Port: port})
		w.sockets = []socket{listenOn("0.0.0.0:18765", 7001)}
		s := w.step(0)
		if s.Main.Process.PID != 500 || len(s.Workers) != 1 || s.Workers[0].PID != 501 {
			t.Errorf("main %d, workers %+v; want 500 and 501 alone: grandchildren are no workers", s.Main.Process.PID, s.Workers)
		}
	})
	t.Run("the owner itself, when its parent is another program", func(t *testing.T) {
		w := newWorld(t, "worker-owns.tree", Target{Port: port})
		w.link("500/exe", "/usr/bin/supervise")
		w.sockets = []socket{listenOn("0.0.0.0:18765", 7001)}
		if s := w.step(0); s.Main.Process.PID != 501 {
			t.Errorf("main %d, want 501", s.Main.Process.PID)
		}
	})
	t.Run("the top-most of several owners", func(t *testing.T) {
		w := newWorld(t, "nginx.tree", Target{Port: port})
		w.sockets = []socket{listenOn("127.0.0.1:18765", 147792)}
		if s := w.step(0); s.Main.Process.PID != 28421 {
			t.Errorf("main %d, want 28421", s.Main.Process.PID)
		}
	})
	t.Run("unknown while nobody listens, found when somebody does", func(t *testing.T) {
		w := newWorld(t, "nginx.tree", Target{Port: port})
		if s := w.step(0); s.Main.Status != MainUnknown || !strings.Contains(s.Main.Why, "nobody listens on 127.0.0.1:18765") {
			t.Errorf("main = %+v, want unknown because nobody listens", s.Main)
		}
		w.sockets = []socket{listenOn("127.0.0.1:18765", 147792)}
		w.step(SweepEvery)
		if s := w.step(SweepEvery); s.Main.Status != MainAlive {
			t.Errorf("main = %+v, want alive", s.Main)
		}
	})
}

func TestSweep_PIDFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		content string
		status  MainStatus
		why     string
	}{
		"missing":               {"", MainUnknown, "does not exist"},
		"empty":                 {" \n", MainUnknown, "is empty"},
		"garbage":               {"nginx: 12\n", MainUnknown, `holds "nginx: 12", not a pid`},
		"negative":              {"-1", MainUnknown, "not a pid"},
		"too large a number":    {"99999999999999999999999", MainUnknown, "not a pid"},
		"a pid that is nowhere": {"77\n", MainGone, "names pid 77, which does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			w := nginxWorld(t)
			os.Remove(w.pidFile)
			if tt.content != "" {
				w.pid(tt.content)
			}
			s := w.step(0)
			if s.Main.Status != tt.status || !strings.Contains(s.Main.Why, tt.why) || s.Trouble != (Trouble{}) {
				t.Errorf("main = %+v, trouble %+v; want %q because it %q", s.Main, s.Trouble, tt.status, tt.why)
			}
			w.pid("28421")
			if s = w.step(SweepEvery); s.Main.Status != MainAlive || len(s.Workers) != 4 {
				t.Errorf("after the pid file appeared main = %+v, %d workers; want alive, 4", s.Main, len(s.Workers))
			}
			w.pid("not yet written")
			if s = w.step(SweepEvery); s.Main.Status != MainAlive || !strings.Contains(s.Main.Why, "still runs") {
				t.Errorf("after the pid file was spoilt main = %+v, want alive, found before", s.Main)
			}
		})
	}
}

func TestSweep_APIDGivenToAnotherProcessIsNotMain(t *testing.T) {
	w := nginxWorld(t)
	w.step(0)
	w.edit("28421/stat", " 213645 ", " 299000 ")
	s := w.step(SweepEvery)
	if s.Main.Status != MainGone || !strings.Contains(s.Main.Why, "now belongs to another process") || s.Main.Process.StartTicks != 213645 {
		t.Errorf("main = %+v, want gone, because the old pid file names a stranger", s.Main)
	}
	w.pid("28421\n\n") // written anew: this one is meant
	if s = w.step(SweepEvery); s.Main.Status != MainAlive || s.Main.Process.StartTicks != 299000 {
		t.Errorf("main = %+v, want alive, a new generation", s.Main)
	}
}

func TestSweep_AWorkerPIDGivenToAnotherProcessIsADeathAndABirth(t *testing.T) {
	w := nginxWorld(t)
	n := len(w.step(0).Events)
	w.edit("28422/stat", " 213645 ", " 299000 ")
	s := w.step(SweepEvery)
	if diff := cmp.Diff([]EventKind{Death, Birth}, kinds(s)[n:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestSweep_TheChildrenListIsNotTrustedAboutDeaths(t *testing.T) {
	w := nginxWorld(t)
	n := len(w.step(0).Events)
	w.write("28421/task/28421/children", "28422 28424 28426 ")
	s := w.step(SweepEvery)
	if len(s.Workers) != 4 || len(s.Events) != n {
		t.Errorf("%d workers, events %v; want 4 and no new ones: 28423 is still there", len(s.Workers), kinds(s)[n:])
	}
}

func TestSweep_ZombiesAreDeadOnceAndStayListed(t *testing.T) {
	w := nginxWorld(t)
	n := len(w.step(0).Events)
	w.edit("28422/stat", ") S ", ") Z ")
	w.edit("28422/stat", " 140725497737192 0", " 140725497737192 134") // SIGABRT, core flag
	s := w.step(SweepEvery)
	s = w.step(FastEvery)
	if len(s.Workers) != 4 || s.Workers[0].State != checks.ProcZombie || len(s.Events) != n+1 || s.Events[n].Exit.String() != "SIGABRT" {
		t.Errorf("workers %+v, events %+v; want a zombie and one death by SIGABRT", s.Workers, s.Events[n:])
	}
	w.exit(28422)
	w.edit("28421/stat", " 34 0 1 0 ", " 34 200 1 0 ")
	if s = w.step(FastEvery); len(s.Workers) != 3 || len(s.Events) != n+1 {
		t.Errorf("%d workers, events %v after it was reaped; want 3 and no new ones", len(s.Workers), kinds(s)[n:])
	}
}

func TestSweep_ReapedChildrenNobodySawAreOneUnseen(t *testing.T) {
	w := nginxWorld(t)
	first := w.step(0)
	n := len(first.Events)
	w.edit("28421/stat", " 34 0 1 0 ", " 34 150 1 0 ")
	s := w.step(SweepEvery)
	if len(s.Events) != n+1 || s.Events[n].Kind != Unseen || s.Events[n].Born != first.At || s.Events[n].At <= s.At {
		t.Fatalf("events = %+v, want one unseen, born after the sweep before (%v)", s.Events[n:], first.At)
	}
	// A known worker that ended explains a rise.
	w.exit(28422)
	w.edit("28421/stat", " 34 150 1 0 ", " 34 300 1 0 ")
	s = w.step(FastEvery)
	if diff := cmp.Diff([]EventKind{Unseen, Death}, kinds(s)[n:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if st := w.o.Stats(); st.Unseen != 1 || st.Exits != 1 || st.Sweeps != 3 {
		t.Errorf("stats = %+v, want 1 unseen, 1 exit, 3 sweeps", st)
	}
}

func TestSweep_AnotherProgramInAWorkersPlaceIsNoted(t *testing.T) {
	w := nginxWorld(t)
	n := len(w.step(0).Events)
	w.link("28422/exe", "/usr/sbin/nginx (deleted)") // an upgraded package
	if s := w.step(SweepEvery); len(s.Events) != n {
		t.Errorf("events = %v after the file was replaced, want none", kinds(s)[n:])
	}
	w.link("28422/exe", "/bin/sh")
	if s := w.step(SweepEvery); !s.Workers[0].ExeChanged || s.Events[n].Kind != ExeChanged {
		t.Errorf("worker %+v, events %v; want the change noted", s.Workers[0], kinds(s)[n:])
	}
}

func TestListener_HeldAfterShutdownNotAfterClose(t *testing.T) {
	w := nginxWorld(t)
	w.step(0)
	w.sockets = nil
	w.step(DumpEvery)
	s := w.step(FastEvery)
	if l := s.Listeners[0]; l.Listening || !l.Held || !l.EverListening || l.AbsentDumps != 2 || l.AbsentFor < FastEvery {
		t.Errorf("listener = %+v, want absent in 2 dumps and held", l)
	}
	for _, pid := range []int{28421, 28422, 28423} {
		if err := os.Remove(filepath.Join(w.root, fmt.Sprint(pid), "fd/5")); err != nil {
			t.Fatal(err)
		}
	}
	if l := w.step(FastEvery).Listeners[0]; l.Held || l.AbsentDumps != 3 {
		t.Errorf("listener = %+v, want absent in 3 dumps and held by nobody", l)
	}
	w.sockets = []socket{listenOn("127.0.0.1:18765", 999)}
	if l := w.step(DumpEvery).Listeners[0]; !l.Listening || l.AbsentDumps != 0 || l.AbsentFor != 0 {
		t.Errorf("listener = %+v, want it back", l)
	}
}

func TestListener_ADumpThatFailsCountsAsNoAbsence(t *testing.T) {
	w := nginxWorld(t)
	w.step(0)
	w.dumpErr = errors.New("no buffer space")
	s := w.step(DumpEvery)
	if s.Listeners[0].AbsentDumps != 0 || !s.Listeners[0].Listening || s.DumpTrouble.Reason != checks.ReasonOwnLimit {
		t.Errorf("listener %+v, trouble %+v; want what was known, and the trouble", s.Listeners[0], s.DumpTrouble)
	}
}

func TestListener_AForeignOwnerIsNamed(t *testing.T) {
	w := nginxWorld(t)
	w.step(0)
	w.write("300/stat", "300 (thief) S 1 300 300 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 250000 0 0 0 5 5 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	w.link("300/fd/3", "socket:[555]")
	w.sockets = []socket{listenOn("127.0.0.1:18765", 555)}
	w.step(DumpEvery)
	w.step(SweepEvery)
	s := w.step(SweepEvery)
	if o := s.Listeners[0].Owners; len(o) != 1 || o[0].PID != 300 || o[0].Role != checks.RoleForeign || o[0].Comm != "thief" {
		t.Errorf("owners = %+v, want the foreign 300", o)
	}
}

func TestSweep_MainByPortIsSucceededByWhoHoldsThePortInItsPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		exe  string
		main int
	}{
		"the same program, upgraded": {"/usr/sbin/nginx (deleted)", 300},
		"the same, in another place": {"/opt/new/nginx", 300},
		"a stranger":                 {"/bin/thief", 28421},
		"nobody knows what":          {"", 28421},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "nginx.tree", Target{Port: port})
			w.sockets = []socket{listenOn("127.0.0.1:18765", 147792)}
			w.step(0)
			w.write("300/stat", "300 (new) S 1 300 300 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 250000 0 0 0 5 5 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
			w.write("300/task/300/children", "")
			w.link("300/fd/3", "socket:[555]")
			if tt.exe != "" {
				w.link("300/exe", tt.exe)
			}
			// Main's tree still has one of the two: it is main as ever.
			w.sockets = []socket{listenOn("127.0.0.1:18765", 147792), listenOn("127.0.0.1:18765", 555)}
			w.step(DumpEvery)
			w.step(SweepEvery)
			if s := w.step(SweepEvery); s.Main.Process.PID != 28421 {
				t.Fatalf("main %d while it holds the port too, want 28421", s.Main.Process.PID)
			}
			w.sockets = w.sockets[1:]
			w.step(DumpEvery)
			w.step(SweepEvery)
			w.step(SweepEvery)
			s := w.step(SweepEvery)
			if s.Main.Process.PID != tt.main || s.Main.Status != MainAlive {
				t.Errorf("main = %+v, want %d, alive", s.Main, tt.main)
			}
		})
	}
}

func TestSweep_SaysOfEachProcessWhatMayNotBeRead(t *testing.T) {
	w := nginxWorld(t)
	if err := os.RemoveAll(filepath.Join(w.root, "28421/fd")); err != nil {
		t.Fatal(err)
	}
	w.write("28421/fd", "no directory: cannot be read\n")
	s := w.step(0)
	if !s.Main.Process.FDsUnknown || s.Main.Process.Listens || s.FDsUnknown == "" {
		t.Errorf("main %+v, of the snapshot %q; want its descriptors unknown", s.Main.Process, s.FDsUnknown)
	}
	if p := s.Workers[0]; p.FDsUnknown || !p.Listens {
		t.Errorf("worker %+v, want it to be known and to listen", p)
	}
}

func TestSweep_ATracersStopIsToldFromASignals(t *testing.T) {
	w := nginxWorld(t)
	w.edit("28422/stat", ") S ", ") t ")
	w.edit("28423/stat", ") S ", ") T ")
	s := w.step(0)
	for i, traced := range []bool{true, false} {
		if p := s.Workers[i]; p.State != checks.ProcStopped || p.Traced != traced {
			t.Errorf("worker %d is %s, traced %t; want stopped, %t", p.PID, p.State, p.Traced, traced)
		}
	}
	w.edit("28422/stat", ") t ", ") S ")
	if p := w.step(SweepEvery).Workers[0]; p.State != checks.ProcAlive || p.Traced {
		t.Errorf("worker is %s, traced %t after it went on; want alive, not traced", p.State, p.Traced)
	}
}

func TestEvents_ASlowReaderSeesTheLast256AndTheGap(t *testing.T) {
	tg := newTarget(Target{Name: "it", PIDFile: "x"})
	tg.sweeps = 1
	for range 3000 {
		tg.record(Event{Kind: Unseen})
	}
	tg.publish(nil)
	old := tg.published.Load()
	for range 3000 {
		tg.record(Event{Kind: Birth})
	}
	tg.publish(nil)
	for _, s := range []*Snapshot{old, tg.published.Load()} {
		if n := len(s.Events); n != EventsKept {
			t.Fatalf("%d events, want %d", n, EventsKept)
		}
		for i, e := range s.Events {
			if e.Seq != s.Events[0].Seq+uint64(i) || e.Kind != s.Events[0].Kind {
				t.Fatalf("event %d = %+v after %+v: a snapshot changed or skips", i, e, s.Events[0])
			}
		}
	}
	if first := tg.published.Load().Events[0].Seq; first != 6000-EventsKept+1 {
		t.Errorf("first kept = %d, want %d", first, 6000-EventsKept+1)
	}
}

func TestPace_SuspicionIsFastForFiveSecondsThenRests(t *testing.T) {
	w := nginxWorld(t)
	w.step(0)
	w.edit("28422/stat", ") S ", ") T ")
	count := func(during time.Duration) (sweeps uint64) {
		before := w.o.Stats().Sweeps
		for end := w.now + during; w.now < end; {
			w.step(FastEvery)
		}
		return w.o.Stats().Sweeps - before
	}
	w.step(SweepEvery)
	if n := count(FastFor); n < 180 || n > 202 {
		t.Errorf("%d sweeps in the first 5 s of suspicion, want about 200", n)
	}
	if n := count(20 * time.Second); n > 25 {
		t.Errorf("%d sweeps in the 20 s after, want about 20", n)
	}
	// Another ground is looked at closely at once.
	w.sockets = nil
	w.step(DumpEvery)
	if n := count(time.Second); n < 30 {
		t.Errorf("%d sweeps in the second after the listener went too, want about 40", n)
	}
}

func TestChanged_FiresOnChangeAndNotOnCalmSweeps(t *testing.T) {
	w := nginxWorld(t)
	fired := func() bool {
		select {
		case <-w.o.Changed():
			return true
		default:
			return false
		}
	}
	w.step(0)
	if !fired() {
		t.Error("no signal after the first sweep")
	}
	for range 30 {
		w.step(DumpEvery)
	}
	if fired() {
		t.Error("a signal after calm sweeps")
	}
	w.exit(28422)
	w.step(SweepEvery)
	if !fired() {
		t.Error("no signal after a death")
	}
	w.step(FastEvery)
	if !fired() {
		t.Error("no signal after a suspicious sweep")
	}
}
