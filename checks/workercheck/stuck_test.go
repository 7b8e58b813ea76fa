package workercheck_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

func stop(p *host.Process) { p.State = checks.ProcStopped }

func TestTracker_Frozen(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(p *proves)
		want int
		held time.Duration
	}{
		{"seen stopped once", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.look(25 * ms)
		}, 0, 0},
		{"seen stopped twice, 100 ms apart", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.look(25 * ms)
			p.look(100 * ms)
		}, 1, 100 * ms},
		{"all of them", func(p *proves) {
			for i := range p.snap.Workers {
				stop(&p.snap.Workers[i])
			}
			p.pass(time.Second)
		}, 4, 975 * ms},
		{"as the observer remembers it", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.snap.Workers[0].StoppedSince = p.now - time.Second
			p.look(25 * ms)
		}, 1, 1025 * ms},
		{"continued in between", func(p *proves) {
			for range 5 {
				stop(&p.snap.Workers[0])
				p.look(75 * ms)
				p.snap.Workers[0].State = checks.ProcAlive
				p.look(25 * ms)
			}
			stop(&p.snap.Workers[0])
			p.look(25 * ms)
		}, 0, 0},
		{"by a tracer for less than 5 s", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.snap.Workers[0].Traced = true
			p.pass(4900 * ms)
		}, 0, 0},
		{"by a tracer for longer", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.snap.Workers[0].Traced, p.snap.Workers[0].Tracer, p.snap.Workers[0].TracerComm = true, 4711, "gdb"
			p.pass(5100 * ms)
			if w := p.facts.Workers[0]; w.Tracer != "gdb 4711" || !w.Traced {
				panic("the tracer is not named")
			}
		}, 1, 5075 * ms},
		{"by its control group", func(p *proves) {
			stop(&p.snap.Workers[0])
			p.snap.Workers[0].CgroupFrozen = true
			p.pass(200 * ms)
		}, 1, 175 * ms},
		{"a helper, which nobody misses", func(p *proves) {
			i := p.child(920 * time.Second)
			p.pass(2 * time.Second)
			stop(&p.snap.Workers[i])
			p.pass(time.Second)
		}, 0, 0},
		{"one that drains", func(p *proves) {
			for range 4 {
				p.bear(p.now)
			}
			p.snap.Workers[0].Listens = false
			p.pass(time.Second)
			stop(&p.snap.Workers[0])
			p.pass(time.Second)
		}, 0, 0},
		{"one that says that it drains", func(p *proves) {
			p.snap.Workers[0].Title = "nginx: worker process is shutting down"
			stop(&p.snap.Workers[0])
			p.pass(time.Second)
		}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := four()
			tt.play(p)
			if p.facts.Frozen != tt.want || p.facts.FrozenFor != tt.held {
				t.Errorf("%d frozen for %v, want %d for %v", p.facts.Frozen, p.facts.FrozenFor, tt.want, tt.held)
			}
		})
	}
}

// runs is how a thread spends its time.
type runs struct {
	ran, waited float64 // shares of the wall time
	kernel      float64 // share of what it ran
	sleeps      bool
	sockets     bool // its process opens and closes some
}

// read makes the reading of a close look at worker i, a second after the last.
func (p *proves) read(i int, r runs) {
	w := &p.snap.Workers[i]
	w.CPUAt = p.now
	if w.Sockets == 0 {
		w.Sockets = 1
	}
	if r.sockets {
		w.Sockets++
	}
	th := host.Thread{TID: w.PID}
	if len(w.Hot) == 1 {
		th = w.Hot[0]
	}
	wall := float64(p.now - th.At)
	th.At = p.now
	th.Ran += time.Duration(r.ran * wall)
	th.Waited += time.Duration(r.waited * wall)
	th.UTime += time.Duration((1-r.kernel)*r.ran*wall) / workercheck.Tick * workercheck.Tick
	th.STime += time.Duration(r.kernel*r.ran*wall) / workercheck.Tick * workercheck.Tick
	if r.sleeps {
		th.Voluntary++
	}
	w.Hot = []host.Thread{th}
	w.UTime, w.STime = th.UTime, th.STime
}

func TestTracker_Spinning(t *testing.T) {
	for name, tt := range map[string]struct {
		runs  runs
		every time.Duration // between readings
		gap   time.Duration // one that is longer, in the middle
		spins bool
	}{
		"a loop": {runs{ran: 1}, time.Second, 0, true},
		"a loop, with the interrupts it is charged for": {runs{ran: 1, kernel: 0.004}, time.Second, 0, true},
		"a loop on a starved host":                      {runs{ran: 0.05, waited: 0.93}, time.Second, 0, true},
		"a loop of a process read more often":           {runs{ran: 1}, 25 * ms, 0, true},
		"busy: it works in the kernel":                  {runs{ran: 1, kernel: 0.05}, time.Second, 0, false},
		"busy: its sockets change":                      {runs{ran: 1, sockets: true}, time.Second, 0, false},
		"busy: it sleeps between requests":              {runs{ran: 0.98, sleeps: true}, time.Second, 0, false},
		"half busy":                                     {runs{ran: 0.5, waited: 0.2}, time.Second, 0, false},
		"a loop, and one reading came late":             {runs{ran: 1}, time.Second, 10 * time.Second, true},
		"a loop, but we did not look for too long":      {runs{ran: 1}, time.Second, 12100 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := four()
			for at := time.Duration(0); at <= 16*time.Second; at += tt.every {
				p.now += tt.every
				if tt.gap > 0 && at == 8*time.Second {
					p.now += tt.gap - tt.every
				}
				p.read(0, tt.runs)
				p.look(0)
			}
			f := &p.facts
			if got := f.Spinning == 1 && f.SpinningFor >= 15*time.Second; got != tt.spins {
				t.Errorf("%d spinning, for %v, worker 0 for %v; want spinning %t", f.Spinning, f.SpinningFor, f.Workers[0].SpinFor, tt.spins)
			}
			if cpu := f.Workers[0].CPU; cpu < tt.runs.ran-0.25 || cpu > tt.runs.ran+0.1 {
				t.Errorf("CPU %v, want about %v", cpu, tt.runs.ran)
			}
			if cpu := f.Workers[1].CPU; cpu != -1 {
				t.Errorf("CPU of one never read = %v, want -1", cpu)
			}
		})
	}
}

func TestTracker_AThreadThatIsNotHotAnyMoreHasStoppedSpinning(t *testing.T) {
	p := four()
	for range 17 {
		p.now += time.Second
		p.read(0, runs{ran: 1})
		p.look(0)
	}
	p.now += time.Second
	p.snap.Workers[0].CPUAt, p.snap.Workers[0].Hot = p.now, nil
	if p.look(0); p.facts.Spinning != 0 || p.facts.Workers[0].SpinFor != 0 {
		t.Errorf("%d spinning for %v, want none", p.facts.Spinning, p.facts.Workers[0].SpinFor)
	}
}

func TestTracker_WithoutItsSocketsNobodyIsSaidToSpin(t *testing.T) {
	p := four()
	for range 20 {
		p.now += time.Second
		p.read(0, runs{ran: 1})
		p.snap.Workers[0].Sockets = 0
		p.look(0)
	}
	if p.facts.Spinning != 0 {
		t.Error("one spins, though its descriptors may not be read")
	}
}

func TestTracker_LoopingSlots(t *testing.T) {
	bad := host.Exit{Known: true, Code: 1}
	for _, tt := range []struct {
		name string
		play func(p *proves)
		want int
	}{
		{"two of four, replaced after 100 ms, dead after 20 ms", func(p *proves) {
			for range 4 {
				p.die(3, bad)
				p.die(2, bad)
				p.pass(100 * ms)
				p.bear(p.now)
				p.bear(p.now)
				p.pass(25 * ms)
			}
		}, 2},
		{"two of four, met by no sweep", func(p *proves) {
			p.die(3, bad)
			p.die(2, bad)
			for range 3 {
				for range 2 {
					p.event(host.Event{Kind: host.Birth, Process: host.ID{PID: 9, StartTicks: 9}, Born: p.now, At: p.now, Brief: true})
					p.event(host.Event{Kind: host.Death, Process: host.ID{PID: 9, StartTicks: 9}, Born: p.now, At: p.now + ms, Exit: bad, Brief: true})
				}
				p.pass(100 * ms)
			}
		}, 2},
		{"one killed for memory every 5 s", func(p *proves) {
			for range 12 {
				p.die(0, killed)
				p.pass(100 * ms)
				p.bear(p.now)
				p.pass(4900 * ms)
			}
		}, 4},
		{"each lost once", func(p *proves) { p.loop(1, time.Second, 100*ms, killed) }, 0},
		{"each lost twice", func(p *proves) { p.loop(2, time.Second, 100*ms, killed) }, 0},
		{"each lost three times in over a minute", func(p *proves) { p.loop(4, 31*time.Second, 100*ms, killed) }, 0},
		{"each recycled every second", func(p *proves) { p.loop(20, time.Second, 25*ms, clean) }, 0},
		{"each ended by its main every second", func(p *proves) { p.loop(20, time.Second, 25*ms, host.Exit{Known: true, Signal: 15}) }, 0},
		{"reloaded every second, exits unknown", func(p *proves) {
			for range 20 {
				p.reload(host.Exit{}, false)
				p.pass(750 * ms)
			}
		}, 0},
		{"healed", func(p *proves) {
			for range 4 {
				p.die(3, bad)
				p.pass(100 * ms)
				p.bear(p.now)
				p.pass(25 * ms)
			}
			p.pass(1100 * ms)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := four()
			tt.play(p)
			if p.facts.LoopingSlots != tt.want || (tt.want > 0) != (p.facts.LoopingFor > 0) {
				t.Errorf("%d slots loop for %v, want %d", p.facts.LoopingSlots, p.facts.LoopingFor, tt.want)
			}
		})
	}
}

// However a healthy server is used, reloaded, recycled and looked at, nobody of
// it is frozen, spins or loops.
func TestTracker_AHealthyServerIsNeverStuck(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &proves{script: newScript(rapid.IntRange(1, 4).Draw(rt, "workers"))}
		p.look(0)
		lastKill := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			n := len(p.snap.Workers)
			who := rapid.IntRange(0, n-1).Draw(rt, "who")
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0:
				p.reload(rapid.SampledFrom([]host.Exit{clean, {}, {Known: true, Signal: 15}}).Draw(rt, "exit"), false)
			case 1: // max_requests
				p.die(who, clean)
				p.pass(25 * ms)
				p.bear(p.now)
			case 2: // somebody runs strace
				w := p.snap.Workers[who]
				p.snap.Workers[who].State, p.snap.Workers[who].Traced = checks.ProcStopped, true
				p.pass(time.Duration(rapid.IntRange(25, 4900).Draw(rt, "traced")) * ms)
				p.snap.Workers[who] = w
			case 3: // one bad death now and then
				if p.now-lastKill > 61*time.Second || lastKill == 0 {
					lastKill = p.now
					p.die(who, killed)
					p.pass(100 * ms)
					p.bear(p.now)
				}
			default: // busy: in one of the ways in which it can be told
				r := rapid.SampledFrom([]runs{{ran: 1, sockets: true}, {ran: 0.99, sleeps: true}, {ran: 0.9, waited: 0.1, kernel: 0.04}, {ran: 0.6}}).Draw(rt, "busy")
				for range rapid.IntRange(1, 40).Draw(rt, "seconds") {
					p.now += time.Second
					p.read(who, r)
					p.look(0)
				}
			}
			p.look(25 * ms)
			if f := &p.facts; f.Frozen > 0 || f.Spinning > 0 || f.LoopingSlots > 0 {
				rt.Fatalf("%d frozen, %d spinning (%v), %d looping", f.Frozen, f.Spinning, f.SpinningFor, f.LoopingSlots)
			}
		}
	})
}
