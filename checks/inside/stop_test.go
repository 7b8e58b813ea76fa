package inside

import (
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// server plays the observer for a main with workers, all of which hold the
// listener, for a minute already.
type server struct {
	stop Stop
	snap host.Snapshot
	now  time.Duration
	pid  int
}

func newServer(n int) *server {
	s := &server{now: 1000 * time.Second, pid: 1}
	s.snap.Main = host.Main{Status: host.MainAlive, Process: s.process("main")}
	for range n {
		s.bear()
	}
	s.pass(time.Minute)
	return s
}

func (s *server) process(comm string) host.Process {
	s.pid++
	return host.Process{ID: host.ID{PID: s.pid, StartTicks: uint64(s.now / (10 * ms))}, Comm: comm, Born: s.now, State: checks.ProcAlive, Listens: true}
}

func (s *server) event(k host.EventKind, p host.Process, exit host.Exit) {
	s.snap.Events = append(s.snap.Events, host.Event{Seq: uint64(len(s.snap.Events) + 1), Kind: k, Main: s.snap.Main.Process.ID,
		Process: p.ID, Comm: p.Comm, Born: p.Born, At: s.now, Exit: exit})
}

func (s *server) bear() {
	p := s.process("worker")
	s.snap.Workers = append(s.snap.Workers, p)
	s.event(host.Birth, p, host.Exit{})
}

var (
	clean  = host.Exit{Known: true}
	failed = host.Exit{Known: true, Code: 1}
)

func (s *server) die(i int, exit host.Exit) {
	p := s.snap.Workers[i]
	s.snap.Workers = append(append([]host.Process{}, s.snap.Workers[:i]...), s.snap.Workers[i+1:]...)
	s.event(host.Death, p, exit)
}

func (s *server) pass(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.now += 25 * ms
		s.snap.At = s.now
		for i := range s.snap.Workers {
			s.snap.Workers[i].Age = s.now - s.snap.Workers[i].Born
		}
		s.snap.Main.Process.Age = s.now - s.snap.Main.Process.Born
		s.stop.Observe(&s.snap)
	}
}

func (s *server) closeAll() {
	s.snap.Main.Process.Listens = false
	for i := range s.snap.Workers {
		s.snap.Workers[i].Listens = false
	}
}

func TestStop(t *testing.T) {
	for name, tt := range map[string]struct {
		play func(s *server)
		want bool
	}{
		"nothing happens": {func(s *server) {}, false},
		"nginx: all but one end, all close, the title says so": {func(s *server) {
			s.die(0, clean)
			s.die(0, clean)
			s.closeAll()
			s.snap.Workers[0].Title = "nginx: worker process is shutting down"
		}, true},
		"nginx: the only worker drains": {func(s *server) {
			s.die(0, failed) // of long ago, if the title says it
			s.die(0, failed)
			s.closeAll()
			s.snap.Workers[0].Title = "nginx: worker process is shutting down"
		}, true},
		"gunicorn: main closes, one worker is busy and keeps the listener": {func(s *server) {
			s.snap.Main.Process.Listens = false
			s.pass(100 * ms)
			s.die(0, clean)
			s.die(0, clean)
		}, true},
		"php-fpm: main keeps the listener, the busy worker has closed it": {func(s *server) {
			s.die(0, clean)
			s.die(0, clean)
			s.snap.Workers[0].Listens = false
		}, true},
		"uwsgi: nobody closes, most workers end with its own code": {func(s *server) {
			for i := range s.snap.Workers {
				s.snap.Workers[i].Comm = "uwsgi"
			}
			s.die(0, host.Exit{Known: true, Code: 17})
			s.die(0, host.Exit{Known: true, Code: 17})
		}, true},
		"apache: a spare was born a second before": {func(s *server) {
			s.bear()
			s.pass(time.Second)
			s.die(3, clean)
			s.die(0, clean)
			s.die(0, clean)
			s.closeAll()
		}, true},
		"haproxy: main is woken, its worker closes": {func(s *server) {
			main := &s.snap.Main.Process
			main.Comm, main.Listens, main.Clock = "haproxy", false, 50*ms
			s.stop = Stop{} // main never held it
			s.snap.Workers = s.snap.Workers[:1]
			s.pass(time.Second)
			main.Clock += ms
			s.snap.Workers[0].Listens = false
		}, true},
		"haproxy: its worker closes and main sleeps on": {func(s *server) {
			main := &s.snap.Main.Process
			main.Comm, main.Listens, main.Clock = "haproxy", false, 50*ms
			s.stop = Stop{}
			s.snap.Workers = s.snap.Workers[:1]
			s.pass(time.Second)
			s.snap.Workers[0].Listens = false
		}, false},
		"the descriptors are closed and everybody lives on": {func(s *server) { s.closeAll() }, false},
		"the listener is shut, held, and everybody lives on": {func(s *server) {
			s.closeAll()
			s.snap.Listeners = []host.Listener{{Held: true}}
		}, false},
		"shut, and the workers end in peace, and are replaced (apache)": {func(s *server) {
			s.closeAll()
			s.snap.Listeners = []host.Listener{{Held: true}}
			s.die(0, clean)
			s.pass(500 * ms)
			s.bear()
		}, false},
		"closed, and the workers fail": {func(s *server) {
			s.closeAll()
			s.die(0, failed)
			s.die(0, clean)
		}, false},
		"a reload": {func(s *server) {
			for range 3 {
				s.bear()
			}
			s.pass(100 * ms)
			for i := range 3 {
				s.snap.Workers[i].Listens = false
			}
			s.die(0, clean)
			s.die(0, clean)
		}, false},
		"a worker is recycled": {func(s *server) {
			s.snap.Workers[0].Listens = false
			s.pass(25 * ms)
			s.die(0, clean)
			s.pass(25 * ms)
			s.bear()
		}, false},
		"a pool shrinks, one by one": {func(s *server) {
			s.die(0, clean)
			s.pass(1100 * ms)
			s.die(0, clean)
		}, false},
		"all are killed": {func(s *server) {
			for range 3 {
				s.die(0, host.Exit{Known: true, Signal: 9})
			}
		}, false},
		"all end in peace at once, and main is stopped": {func(s *server) {
			s.snap.Main.Process.State = checks.ProcStopped
			s.die(0, clean)
			s.die(0, clean)
		}, false},
		"all end in peace at once, and main does nothing": {func(s *server) {
			for range 3 {
				s.die(0, clean)
			}
			s.pass(3 * time.Second)
		}, false},
		"most end in peace at once, and are replaced": {func(s *server) {
			s.die(0, clean)
			s.die(0, clean)
			s.pass(time.Second)
			s.bear()
			s.bear()
		}, false},
		"a child that only looked like a holder for a moment": {func(s *server) {
			s.bear()
			s.pass(50 * ms)
			s.snap.Workers[3].Listens = false
			s.pass(10 * time.Second)
			s.die(0, clean)
		}, false},
		"main ends on its way out": {func(s *server) {
			s.closeAll()
			s.die(0, clean)
			s.die(0, clean)
			s.pass(time.Second)
			s.die(0, clean)
			s.pass(25 * ms)
			s.snap.Main.Status = host.MainGone
		}, true},
		"and another main begins": {func(s *server) {
			s.closeAll()
			s.die(0, clean)
			s.pass(time.Second)
			s.snap.Main.Process = s.process("main")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(3)
			tt.play(s)
			s.pass(500 * ms)
			since, got := s.stop.For(s.now)
			if got != tt.want || got && since <= 0 {
				t.Errorf("stopping %t for %v, want %t", got, since, tt.want)
			}
		})
	}
}
