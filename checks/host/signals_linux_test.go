package host_test

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// watch starts a server of two workers and an observer of it that knows them.
func watch(t *testing.T) (*hosttest.Server, *host.Observer) {
	t.Helper()
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	until(t, o, "2 workers", healthy(2))
	return s, o
}

// A Go worker has several threads: the one that spins is not the main one.
func TestObserver_SeesAThreadThatSpinsBehindItsMainThread(t *testing.T) {
	t.Parallel()
	s, o := watch(t)
	s.Do("spin one")
	var first, second host.Thread
	var sockets uint64
	until(t, o, "two readings of a spinning thread", func(s host.Snapshot) bool {
		for _, w := range s.Workers {
			for _, th := range w.Hot {
				switch {
				case th.UTime < 300*time.Millisecond || w.Sockets == 0: // not it, or not for long
				case first.TID != th.TID:
					first, sockets = th, w.Sockets
				case th.At > first.At:
					second = th
					return w.Sockets == sockets && w.Threads > 1 && th.TID != w.PID
				}
			}
		}
		return false
	})
	share := float64(second.Ran+second.Waited-first.Ran-first.Waited) / float64(second.At-first.At)
	if share < 0.8 || second.Voluntary != first.Voluntary {
		t.Errorf("it ran or waited %.2f of the time, voluntary switches %d after %d; want at least 0.8, and none", share, second.Voluntary, first.Voluntary)
	}
}

func TestObserver_SeesAWorkerThatIsTracedAndSinceWhen(t *testing.T) {
	t.Parallel()
	_, o := watch(t)
	snap, _ := o.Snapshot("it")
	pid := snap.Workers[0].PID
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(pid); err != nil {
		skip(t, "may not trace: "+err.Error())
	}
	snap = until(t, o, "a traced worker", func(s host.Snapshot) bool {
		return s.Workers[0].Traced && s.Workers[0].StoppedSince != 0 && s.Workers[0].State == checks.ProcStopped
	})
	if w := snap.Workers[0]; w.Tracer != unix.Gettid() || w.TracerComm == "" {
		t.Errorf("tracer %d %q, want %d and a name", w.Tracer, w.TracerComm, unix.Gettid())
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		t.Fatal(err)
	}
	until(t, o, "no traced worker", func(s host.Snapshot) bool { return !s.Workers[0].Traced && s.Workers[0].StoppedSince == 0 })
}

func TestObserver_SeesHowNearAWorkerIsToItsLimitOfDescriptors(t *testing.T) {
	t.Parallel()
	_, o := watch(t)
	snap := until(t, o, "descriptors", func(s host.Snapshot) bool { return s.Workers[0].FDLimit > 0 && s.Workers[0].NextFD > 0 })
	w := snap.Workers[0]
	if w.NextFD >= w.FDLimit {
		t.Fatalf("descriptor %d of %d is next in a worker with few", w.NextFD, w.FDLimit)
	}
	lowest := 0
	for {
		if _, err := os.Readlink("/proc/" + strconv.Itoa(w.PID) + "/fd/" + strconv.Itoa(lowest)); err != nil {
			break
		}
		lowest++
	}
	limit := unix.Rlimit{Cur: uint64(lowest), Max: uint64(w.FDLimit)}
	if err := unix.Prlimit(w.PID, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		skip(t, "may not limit another process: "+err.Error())
	}
	until(t, o, "a worker without a free descriptor", func(s host.Snapshot) bool {
		return s.Workers[0].FDLimit == lowest && s.Workers[0].NextFD == lowest
	})
}

func TestObserver_KnowsTheMachine(t *testing.T) {
	t.Parallel()
	_, o := watch(t)
	_, err := os.Stat("/proc/pressure/cpu")
	until(t, o, "the state of the machine", func(s host.Snapshot) bool {
		return s.Host.CPUs > 0 && s.Host.Late > 0 && (s.Host.CPUPressure >= 0) == (err == nil)
	})
}

// Processes that use no CPU are not read: that they stop is seen all the same.
func TestObserver_SeesACalmWorkerStopAndANewOneAppear(t *testing.T) {
	t.Parallel()
	s, o := watch(t)
	until(t, o, "4 calm sweeps", func(s host.Snapshot) bool { return s.Sweep >= 5 && healthy(2)(s) })
	s.Do("stop")
	until(t, o, "2 stopped workers", func(s host.Snapshot) bool {
		return s.Workers[0].State == checks.ProcStopped && s.Workers[1].State == checks.ProcStopped
	})
	s.Do("cont")
	until(t, o, "2 running workers", healthy(2))
	s.Do("kill")
	until(t, o, "2 new workers", func(s host.Snapshot) bool { return count(s, host.Death) == 2 && healthy(2)(s) })
}

// A burst of forks leaves nothing behind: no descriptor, and the right workers.
func TestObserver_IsBoundedInABurstOfForks(t *testing.T) {
	const forks = 500
	pidFile := t.TempDir() + "/pid"
	main := exec.Command("sh", "-c", `sleep 1000 & echo $$ > `+pidFile+`; read go; i=0; while [ $i -lt `+strconv.Itoa(forks)+` ]; do sleep 0.2 & i=$((i+1)); done; wait`)
	in, err := main.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	main.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := main.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(-main.Process.Pid, unix.SIGKILL); _ = main.Wait() }()
	before := openFDs(t)
	o := observe(t, host.Target{PIDFile: pidFile, Listeners: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}})
	until(t, o, "a worker", func(s host.Snapshot) bool { return len(s.Workers) == 1 })
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	most := 0
	snap := until(t, o, "the burst over", func(s host.Snapshot) bool {
		most = max(most, openFDs(t)-before)
		return count(s, host.Death) >= host.EventsKept/4 && len(s.Workers) == 1
	})
	if left := openFDs(t) - before; left > 30 || most > 5*forks || len(snap.Events) > host.EventsKept || snap.Trouble != (host.Trouble{}) {
		t.Errorf("%d descriptors left, %d at most, %d events, trouble %+v; want about 10, 5 for each fork, %d, none",
			left, most, len(snap.Events), snap.Trouble, host.EventsKept)
	}
}
