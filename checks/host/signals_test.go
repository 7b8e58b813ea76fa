//go:build linux

package host

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// apacheWorld is main 1302 and a worker 1304 with the threads 1304 and 1306 to 1309.
func apacheWorld(t *testing.T) *world {
	w := newWorld(t, "apache-event.tree", Target{Listeners: []netip.AddrPort{port}})
	w.sockets = []socket{listenOn("127.0.0.1:18765", 4677913)}
	w.now = 5000 * time.Second
	w.pid("1302\n")
	return w
}

func tids(p Process) (out []int) {
	for _, th := range p.Hot {
		out = append(out, th.TID)
	}
	return out
}

func TestSignals_ReadsARecordedApache(t *testing.T) {
	w := apacheWorld(t)
	w.write("1302/cmdline", "/usr/sbin/apache2\x00-k\x00start\x00")
	w.write("1304/cmdline", "/usr/sbin/apache2\x00-k\x00start\x00")
	s := w.step(0)
	if len(s.Workers) != 1 {
		t.Fatalf("%d workers, want 1", len(s.Workers))
	}
	p := s.Workers[0]
	if p.Threads != 5 || p.Ran != 735019 || p.Waited != 2872310 || p.CPUAt == 0 || p.NextFD != 9 || p.FDLimit != 20000 || p.Title != "" {
		t.Errorf("worker = %+v, want 5 threads, the main thread's schedstat, descriptor 9 of 20000 next (10 is open), no title: it listens", p)
	}
	if got := s.Main.Process.Title; got != "/usr/sbin/apache2 -k start" {
		t.Errorf("main's title = %q", got)
	}
	if s.Host.CPUPressure != -1 || s.Host.CPUs < 1 {
		t.Errorf("host = %+v, want no pressure (the tree has none), and CPUs", s.Host)
	}
	w.write("pressure/cpu", "some avg10=42.00 avg60=1.00 avg300=0.00 total=1\n")
	if s = w.step(SweepEvery); s.Host.CPUPressure != 0.42 {
		t.Errorf("pressure = %g, want 0.42", s.Host.CPUPressure)
	}
}

func TestSignals_AThreadThatSpinsBehindItsMainThreadIsFound(t *testing.T) {
	w := apacheWorld(t)
	w.step(0)
	// 1307 ran 0.6 s and waited 0.3 s of the second; the main thread slept.
	w.edit("1304/stat", " 146 0 0 0 0 0 ", " 146 0 0 0 60 0 ")
	w.edit("1304/task/1307/stat", " 2 0 0 0 0 0 ", " 2 0 0 0 60 0 ")
	w.edit("1304/task/1307/stat", ") S ", ") R ")
	w.edit("1304/task/1307/schedstat", "18764 962795", "600018764 300962795")
	p := w.step(SweepEvery).Workers[0]
	if !slices.Equal(tids(p), []int{1307}) || p.UTime != 600*time.Millisecond || p.Sockets == 0 {
		t.Fatalf("worker = %+v, want thread 1307 hot, 0.6 s used, its sockets read", p)
	}
	th := p.Hot[0]
	if th.Ran != 600018764 || th.Waited != 300962795 || th.UTime != 600*time.Millisecond || th.STime != 0 || th.Voluntary != 1 || th.At != p.CPUAt {
		t.Errorf("thread = %+v", th)
	}
	t.Run("while it waits for a CPU it stays hot: the kernel adds a wait when it is over", func(t *testing.T) {
		if p := w.step(SweepEvery).Workers[0]; !slices.Equal(tids(p), []int{1307}) {
			t.Errorf("hot = %v, want 1307", tids(p))
		}
	})
	t.Run("its sockets change when a connection comes", func(t *testing.T) {
		before := p.Sockets
		w.link("1304/fd/9", "socket:[5000]")
		w.edit("1304/task/1307/schedstat", "600018764", "1500018764")
		w.edit("1304/stat", " 146 0 0 0 60 0 ", " 146 0 0 0 150 0 ")
		if p := w.step(SweepEvery).Workers[0]; p.Sockets == before || p.Sockets == 0 {
			t.Errorf("sockets = %d, before %d; want another number", p.Sockets, before)
		}
	})
	t.Run("a thread that sleeps again is hot no more", func(t *testing.T) {
		w.edit("1304/task/1307/stat", ") R ", ") S ")
		w.step(SweepEvery)
		if p := w.step(SweepEvery).Workers[0]; len(p.Hot) != 0 || p.Sockets != 0 {
			t.Errorf("hot = %v, sockets %d; want none", tids(p), p.Sockets)
		}
	})
}

func TestSignals_AFastSweepDoesNotReadCloselyEachTime(t *testing.T) {
	w := apacheWorld(t)
	at := w.step(0).Workers[0].CPUAt
	w.edit("1304/stat", ") S ", ") T ")
	s := w.step(SweepEvery)
	read := s.Workers[0].CPUAt
	if read == at || s.Workers[0].StoppedSince == 0 {
		t.Fatalf("worker = %+v, want it read again, and stopped", s.Workers[0])
	}
	for range 5 {
		if p := w.step(FastEvery).Workers[0]; p.CPUAt != read || p.StoppedSince != s.Workers[0].StoppedSince {
			t.Fatalf("worker = %+v, want what was read at %v, stopped since %v", p, read, s.Workers[0].StoppedSince)
		}
	}
	w.edit("1304/stat", ") T ", ") S ")
	if p := w.step(SweepEvery).Workers[0]; p.StoppedSince != 0 || p.State != checks.ProcAlive {
		t.Errorf("worker = %+v, want it stopped no more", p)
	}
}

func TestSignals_ATracerIsNamed(t *testing.T) {
	w := apacheWorld(t)
	w.step(0)
	w.write("600/stat", "600 (strace) S 1 600 600 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 250000 0 0 0 5 5 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	w.write("1304/status", "Name:\tapache2\nTracerPid:\t600\n")
	w.edit("1304/stat", ") S ", ") t ")
	if p := w.step(SweepEvery).Workers[0]; !p.Traced || p.Tracer != 600 || p.TracerComm != "strace" || p.State != checks.ProcStopped {
		t.Errorf("worker = %+v, want it traced by strace, 600", p)
	}
	w.edit("1304/stat", ") t ", ") S ")
	if p := w.step(SweepEvery).Workers[0]; p.Traced || p.Tracer != 0 || p.TracerComm != "" {
		t.Errorf("worker = %+v, want it traced no more", p)
	}
}

func TestSignals_TheTitleOfAWorkerThatStopsListening(t *testing.T) {
	w := nginxWorld(t)
	w.write("28422/cmdline", "nginx: worker process\x00\x00\x00")
	if p := w.step(0).Workers[0]; p.Title != "" {
		t.Errorf("title = %q of a worker that listens, want none", p.Title)
	}
	w.write("28422/cmdline", "nginx: worker process is shutting down\x00\x00")
	w.link("28422/fd/5", "/dev/null")
	w.step(SweepEvery)
	if p := w.step(SweepEvery).Workers[0]; p.Title != "nginx: worker process is shutting down" {
		t.Errorf("title = %q", p.Title)
	}
}

func TestSignals_DescriptorsNumberNotCount(t *testing.T) {
	w := apacheWorld(t)
	w.edit("1304/limits", "20000 ", "9 ")
	p := w.step(0).Workers[0]
	if p.NextFD != 9 || p.FDLimit != 9 {
		t.Errorf("next descriptor %d of %d, want 9 of 9: exhausted", p.NextFD, p.FDLimit)
	}
	w.write("1304/fd/9", "")
	if p = w.step(verifyEvery + SweepEvery).Workers[0]; p.NextFD != 11 {
		t.Errorf("next descriptor %d, want 11", p.NextFD)
	}
}

func TestObserver_ADumpThatBringsNothingNewMovesOnlyItsCount(t *testing.T) {
	w := apacheWorld(t)
	first := w.step(0)
	published := w.o.targets[0].published.Load()
	s := w.step(DumpEvery)
	if s.Dump != first.Dump+1 || s.DumpAt <= first.DumpAt {
		t.Errorf("dump %d at %v, want one more than %d, later than %v", s.Dump, s.DumpAt, first.Dump, first.DumpAt)
	}
	if w.o.targets[0].published.Load() != published {
		t.Error("a new snapshot was published though nothing changed")
	}
	w.sockets[0].queue++
	if s = w.step(DumpEvery); s.Listeners[0].Queue != 3 || s.Dump != first.Dump+2 {
		t.Errorf("listener %+v in dump %d, want a queue of 3 in dump %d", s.Listeners[0], s.Dump, first.Dump+2)
	}
}
