package host_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

// forker is a shell that forks children which exit 7 at once.
type forker struct {
	t    testing.TB
	file string // its pid file
	in   io.Writer
	out  *bufio.Reader
}

func startForker(t testing.TB) *forker {
	t.Helper()
	cmd := exec.Command("sh", "-c", `while read n; do i=0; while [ $i -lt $n ]; do (exit 7); i=$((i+1)); done; echo done; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	f := &forker{t: t, file: filepath.Join(t.TempDir(), "pid"), in: in, out: bufio.NewReader(out)}
	if err := os.WriteFile(f.file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	f.fork(1) // it runs the loop now, and has reaped a child
	return f
}

// fork returns when n children have come and gone.
func (f *forker) fork(n int) {
	f.t.Helper()
	fmt.Fprintln(f.in, n)
	if line, err := f.out.ReadString('\n'); err != nil || line != "done\n" {
		f.t.Fatalf("forker said %q, %v", line, err)
	}
}

// stepped is an observer that works when it is told to, with a live connector.
func stepped(t *testing.T, target host.Target) *host.Observer {
	t.Helper()
	target.Name = "it"
	o, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Prepare(o))
	host.OpenConnector(o)
	needConnector(t, o)
	host.Step(o)
	return o
}

func needConnector(t *testing.T, o *host.Observer) {
	t.Helper()
	if s := o.Stats().Connector; s != host.ConnectorLive {
		skip(t, "needs the process connector (initial network and pid namespace; CAP_NET_ADMIN before Linux 6.6), it is "+string(s))
	}
}

func TestConnector_CountsEveryWorkerThatNoSweepSaw(t *testing.T) {
	f := startForker(t)
	o := observe(t, host.Target{PIDFile: f.file})
	first := until(t, o, "main", func(s host.Snapshot) bool { return s.Main.Status == host.MainAlive })
	needConnector(t, o)
	seq, exits := first.Events[len(first.Events)-1].Seq, o.Stats().Exits
	for round := range 4 {
		const n = 50
		f.fork(n)
		exits += n
		s := until(t, o, "50 more deaths", func(host.Snapshot) bool { return o.Stats().Exits >= exits })
		births, deaths := map[host.ID]host.Event{}, 0
		for _, e := range s.Events {
			switch {
			case e.Seq <= seq:
			case e.Kind == host.Birth:
				births[e.Process] = e
			case e.Kind == host.Death:
				deaths++
				b, born := births[e.Process]
				if !born || e.At < b.Born || e.Exit.String() != "exit 7" && e.Exit.Known || e.Brief && e.Age() > time.Second {
					t.Errorf("death %+v of birth %+v, want exit 7 after the birth", e, b)
				}
				if e.Brief && !e.Exit.Known {
					t.Errorf("death %+v: the connector tells how it ended", e)
				}
			default:
				t.Errorf("event %+v, want births and deaths alone", e)
			}
		}
		seq = s.Events[len(s.Events)-1].Seq
		if len(births) != n || deaths != n {
			t.Errorf("round %d: %d births and %d deaths, want %d of each", round, len(births), deaths, n)
		}
	}
	if s := o.Stats(); s.Unseen != 0 || s.ConnectorLost != 0 || s.Exits != exits {
		t.Errorf("stats = %+v, want %d exits, none unseen, no event lost", s, exits)
	}
}

func TestConnector_ForksElsewhereLeaveUsAsleep(t *testing.T) {
	watched, stranger := startForker(t), startForker(t)
	o := observe(t, host.Target{PIDFile: watched.file})
	until(t, o, "main and a second sweep", func(s host.Snapshot) bool { return s.Main.Status == host.MainAlive && s.Sweep > 1 })
	needConnector(t, o)
	before := o.Stats()
	stranger.fork(1000)
	after := o.Stats()
	if n := after.ConnectorEvents - before.ConnectorEvents; n > 20 || after.Connector != host.ConnectorLive {
		t.Errorf("%d events passed during 1000 forks elsewhere, connector %s; want next to none (exits without a parent of the whole host), live", n, after.Connector)
	}
	watched.fork(1)
	until(t, o, "the watched one's child", func(host.Snapshot) bool { return o.Stats().Exits == before.Exits+1 })
}

func TestConnector_LostEventsAreCountedAndEverythingIsSweptAnew(t *testing.T) {
	f := startForker(t)
	o := stepped(t, host.Target{PIDFile: f.file})
	host.ShrinkConnector(o)
	f.fork(200)
	host.Step(o)
	host.Step(o) // those whose end was lost are given a second sweep
	s := o.Stats()
	if s.ConnectorLost < 100 || s.ConnectorResyncs == 0 || s.Exits+s.ConnectorLost < 200 {
		t.Errorf("stats = %+v after 400 events with room for some, want hundreds lost, a resync, and no child twice", s)
	}
	snap, _ := o.Snapshot("it")
	if len(snap.Workers) != 0 || snap.Main.Status != host.MainAlive || s.Exits+s.Unseen == 0 {
		t.Errorf("snapshot = %+v, want main alive, no worker", snap)
	}
	f.fork(1)
	host.Step(o)
	if after := o.Stats(); after.Exits != s.Exits+1 || after.Unseen != s.Unseen || after.ConnectorLost != s.ConnectorLost {
		t.Errorf("stats = %+v after one child more, before it %+v", after, s)
	}
}

func TestConnector_TooManyEventsOfOthersEndIt(t *testing.T) {
	f, stranger := startForker(t), startForker(t)
	o := stepped(t, host.Target{PIDFile: f.file})
	host.PassAll(o)
	for range 6 { // room for all
		stranger.fork(100)
		host.ReadConnector(o)
	}
	if s := o.Stats(); s.Connector != host.ConnectorDropped || s.ConnectorDrops != 1 {
		t.Errorf("stats = %+v after 1200 events of others, want the connector dropped", s)
	}
	f.fork(3)
	host.Step(o)
	if s := o.Stats(); s.Unseen != 1 {
		t.Errorf("stats = %+v, want the sweep to find what it can: one unseen", s)
	}
}

func TestConnector_InAnotherNamespaceSweepsGoOn(t *testing.T) {
	if os.Getuid() != 0 {
		skip(t, "needs root, to make namespaces")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"network": {"--net"}, "pid": {"--pid", "--fork", "--mount-proc"}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("unshare", append(args, exe, "-test.run=^TestRefused$", "-test.v")...)
			cmd.Env = append(os.Environ(), "HT_REFUSED="+filepath.Join(t.TempDir(), "pid"))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRefused") {
				t.Errorf("in a %s namespace: %v\n%s", name, err, out)
			}
		})
	}
}

// TestRefused is the other half of the test above.
func TestRefused(t *testing.T) {
	if os.Getenv("HT_REFUSED") == "" {
		return // only as a child
	}
	f := startForker(t)
	o := observe(t, host.Target{PIDFile: f.file})
	until(t, o, "main", func(s host.Snapshot) bool { return s.Main.Status == host.MainAlive })
	f.fork(3)
	until(t, o, "what a sweep can tell: one unseen", func(host.Snapshot) bool { return o.Stats().Unseen == 1 })
	if s := o.Stats(); s.Connector != host.ConnectorRefused || s.Errors != 0 {
		t.Errorf("stats = %+v, want the connector refused and no error", s)
	}
}

func TestConnector_EndsWithTheObserver(t *testing.T) {
	f := startForker(t)
	before := openFDs(t)
	o, err := host.New(host.Config{Targets: []host.Target{{Name: "it", PIDFile: f.file}}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	until(t, o, "main", func(s host.Snapshot) bool { return s.Main.Status == host.MainAlive })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
	if after := openFDs(t); after != before || o.Stats().Connector != host.ConnectorOff {
		t.Errorf("%d descriptors before, %d after, connector %s; want as many, off", before, after, o.Stats().Connector)
	}
}

// BenchmarkConnector: children of main that live less than a millisecond, one
// after the other; ns/op is mostly theirs, cpu-ns/op ours.
func BenchmarkConnector(b *testing.B) {
	f := startForker(b)
	o := observe(b, host.Target{PIDFile: f.file})
	until(b, o, "main", func(s host.Snapshot) bool { return s.Main.Status == host.MainAlive })
	exits, used := o.Stats().Exits, cpu()
	b.ResetTimer()
	f.fork(b.N)
	b.StopTimer()
	until(b, o, "the last", func(host.Snapshot) bool {
		s := o.Stats()
		return s.Exits >= exits+uint64(b.N) || s.ConnectorLost > 0
	})
	b.ReportMetric(float64(cpu()-used)/float64(b.N), "cpu-ns/op")
	s := o.Stats()
	b.ReportMetric(float64(s.ConnectorLost), "lost")
	b.ReportMetric(float64(s.Unseen), "unseen")
}
