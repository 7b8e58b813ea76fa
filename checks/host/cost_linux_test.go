package host_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

func openFDs(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// cpu is what this process has used so far, user and system.
func cpu() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestObserver_LeaksNoDescriptorsOverThousandsOfSweeps(t *testing.T) {
	s := hosttest.Start(t, hosttest.Options{Workers: 3, Respawn: time.Millisecond})
	before := openFDs(t)
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	finish := host.Prepare(o)
	for i := range 10_000 {
		switch i {
		case 500:
			s.Do("crash on")
		case 2500:
			s.Do("crash off")
		}
		host.Step(o)
	}
	during := openFDs(t) - before
	finish()
	if after := openFDs(t); after != before || during > 30 {
		t.Errorf("%d descriptors more while observing, %d after; want at most 30, 0", during, after-before)
	}
	if st := o.Stats(); st.Exits < 10 || st.Sweeps < 10_000 || st.Errors != 0 {
		t.Errorf("stats = %+v, want thousands of sweeps, tens of exits, no errors", st)
	}
}

func TestObserver_IdleCostsLittle(t *testing.T) {
	s := hosttest.Start(t, hosttest.Options{Workers: 4, Shared: true, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "4 workers, calm", func(s host.Snapshot) bool { return healthy(4)(s) && s.Sweep > 2 })
	used, from := cpu(), time.Now()
	last, _ := o.Snapshot("it")
	until(t, o, "3 more sweeps", func(s host.Snapshot) bool { return s.Sweep >= last.Sweep+3 })
	share := float64(cpu()-used) / float64(time.Since(from))
	t.Logf("idle observer: %.2f %% of a core (this test's own polling included)", 100*share)
	// Well under 0.5 % on a quiet machine; the bound allows for the race
	// detector and a busy one, and still finds a loop that spins.
	if share > 0.10 {
		t.Errorf("idle observer used %.1f %% of a core", 100*share)
	}
}

func BenchmarkDump(b *testing.B)  { benchmark(b, host.Dump) }
func BenchmarkSweep(b *testing.B) { benchmark(b, host.Sweep) }

// benchmark reports CPU time of this process beside the wall time: on a shared
// machine only the former says something.
func benchmark(b *testing.B, do func(*host.Observer)) {
	s := hosttest.Start(b, hosttest.Options{Workers: 4, Shared: true, Respawn: time.Second})
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}}}, host.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Prepare(o)()
	for range 20 {
		host.Step(o)
	}
	b.ReportAllocs()
	used := cpu()
	for b.Loop() {
		do(o)
	}
	b.ReportMetric(float64(cpu()-used)/float64(b.N), "cpu-ns/op")
}
