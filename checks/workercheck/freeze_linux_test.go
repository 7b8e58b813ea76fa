package workercheck_test

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

func TestWorkers_AllStoppedAreKnownByOurOwnConnection(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 4, Shared: true, Respawn: 100 * time.Millisecond})
	f := newFindings()
	watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
	f.until(t, "4 of 4, calm", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious && x.Workers.Local == "" })
	at := s.Do("stop")
	f.until(t, "first sight", func(x checks.Finding) bool { return x.Workers.Serving == 0 })
	t.Logf("first sight after %v", time.Since(at))
	f.until(t, "second look", func(x checks.Finding) bool { return x.Workers.Frozen == 4 })
	t.Logf("seen twice after %v", time.Since(at))
	got := f.until(t, "unaccepted", func(x checks.Finding) bool { return x.Workers.Local == checks.LocalUnanswered && x.Workers.Frozen == 4 })
	t.Logf("unaccepted after %v: %s, local %v %d", time.Since(at), got.Detail, got.Workers.LocalFor, got.Workers.LocalFails)
	if !got.Urgent || !got.Suspicious || got.Outcome != checks.Fail || got.Reason != checks.ReasonWorkersStuck {
		t.Errorf("finding = %+v, want an urgent, suspicious fail", got)
	}
	if p := proof(got); p != "P3 workers_frozen" {
		t.Errorf("proof %q, want P3", p)
	}
	s.Do("cont")
	f.until(t, "4 of 4 again, calm", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious })
}

func TestWorkers_OneStoppedIsKnownWithinASecondAndDecidedAfterFive(t *testing.T) {
	t.Parallel()
	target, _ := nginx(t, 4, "off")
	f := newFindings()
	watch(t, target, f.add)
	got := f.until(t, "4 of 4, calm", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious && x.Workers.Local == "" })
	var pid int
	for _, w := range got.Workers.Workers {
		if w.Serving {
			pid = w.PID
		}
	}
	_, n := f.since(0)
	at := time.Now()
	syscall.Kill(pid, syscall.SIGSTOP)
	got = f.until(t, "frozen", func(x checks.Finding) bool { return x.Workers.Frozen == 1 && x.Urgent })
	t.Logf("urgent after %v: %s", time.Since(at), got.Detail)
	got = f.until(t, "a proof", func(x checks.Finding) bool { return proof(x) != "" })
	t.Logf("%s after %v: %s", proof(got), time.Since(at), got.Detail)
	if p := proof(got); p != "P3 workers_frozen" || got.Workers.FrozenFor < 5*time.Second {
		t.Errorf("proof %q after %v, want P3 after 5 s", p, got.Workers.FrozenFor)
	}
	all, _ := f.since(n)
	urgent := 0
	for _, x := range all {
		if x.Urgent {
			urgent++
		}
	}
	t.Logf("%d of %d findings urgent", urgent, len(all))
	if urgent > 20 {
		t.Errorf("%d urgent findings about one stopped worker, want a calm flow", urgent)
	}
	syscall.Kill(pid, syscall.SIGCONT)
	f.until(t, "calm", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious })
}
