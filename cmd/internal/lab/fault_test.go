//go:build linux

package lab_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// stat returns fields of /proc/PID/stat by their numbers in proc(5).
func stat(t *testing.T, pid int) (field func(n int) string) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	return func(n int) string { return fields[n-3] }
}

func stopped(t *testing.T, pid int) bool { return stat(t, pid)(3) == "T" }

// short is how long a test waits for an answer that must not come.
const short = 200 * time.Millisecond

func TestLab_FrozenWorkersServeNobodyAndThawedOnesDo(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := pids(awaitAllReady(t, l))
		if err := l.FreezeAll(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range before {
			await(t, "the worker stops", func() bool { return stopped(t, pid) })
		}
		if body, err := get(l.Addr(), short); err == nil {
			t.Errorf("get = %q, want no answer", body)
		}
		if err := l.Thaw(); err != nil {
			t.Fatal(err)
		}
		mustServe(t, l)
		if s := status(t, l); !slices.Equal(pids(s), before) || s.Deaths != 0 {
			t.Errorf("workers %v, %d deaths; want the %v of before", pids(s), s.Deaths, before)
		}
	})
}

func TestLab_FreezeOneStopsOneWorker(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		pid, err := l.FreezeOne()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range pids(status(t, l)) {
			await(t, "one worker and no other is stopped", func() bool { return stopped(t, w) == (w == pid) })
		}
		if err := l.Thaw(); err != nil {
			t.Fatal(err)
		}
		await(t, "it goes on", func() bool { return !stopped(t, pid) })
	})
}

func TestLab_StopEndsFrozenAndSpinningWorkers(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		ended := watch(t, append(pids(awaitAllReady(t, l)), l.PID())...)
		if _, err := l.Spin(1); err != nil {
			t.Fatal(err)
		}
		if err := l.FreezeAll(); err != nil {
			t.Fatal(err)
		}
		l.Stop()
		ended()
	})
}

func TestLab_APoisonedRequestSpinsOneWorkerUntilItIsKilled(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		awaitAllReady(t, l)
		// One connection to each worker, to see whose go on.
		conns := map[int]net.Conn{}
		await(t, "a connection to each worker", func() bool {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			pid, err := ask(conn, patience)
			if _, twice := conns[pid]; err != nil || twice {
				conn.Close()
			} else {
				conns[pid] = conn
				t.Cleanup(func() { conn.Close() })
			}
			return len(conns) == lab.DefaultWorkers
		})
		spinning, err := l.Spin(1)
		if err != nil || len(spinning) != 1 {
			t.Fatalf("Spin(1) = %v, %v, want one worker", spinning, err)
		}
		for pid, conn := range conns {
			if pid == spinning[0] {
				await(t, "nothing more on its other connections", func() bool { _, err := ask(conn, short); return err != nil })
			} else if _, err := ask(conn, patience); err != nil {
				t.Errorf("worker %d does not spin and answers %v", pid, err)
			}
		}
		burnsInUserMode(t, spinning[0])
		ended := watch(t, spinning...)
		if err := l.KillWorker(spinning[0]); err != nil {
			t.Fatal(err)
		}
		ended()
		awaitAllReady(t, l)
		mustServe(t, l)
	})
}

// ask makes one request on a connection that is kept and returns who answered.
func ask(conn net.Conn, limit time.Duration) (pid int, err error) {
	conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return 0, err
	}
	for answer := bufio.NewScanner(conn); answer.Scan(); {
		if _, err := fmt.Sscanf(answer.Text(), "hello from worker %d", &pid); err == nil {
			return pid, nil
		}
	}
	return 0, os.ErrDeadlineExceeded
}

// burnsInUserMode waits until the process's hottest thread has used 0.3 s of CPU
// and checks that it was user time, without a voluntary switch.
func burnsInUserMode(t *testing.T, pid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", pid, threads, err)
	}
	ticks := func(task string, n int) int { // of 10 ms
		v, err := strconv.Atoi(stat(t, pid)(n))
		if task != "" {
			raw, readErr := os.ReadFile(task + "/stat")
			if readErr != nil {
				t.Fatal(readErr)
			}
			v, err = strconv.Atoi(strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))[n-3])
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	voluntary := func(task string) (line string) {
		raw, err := os.ReadFile(task + "/status")
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(raw)) {
			if strings.HasPrefix(l, "voluntary_ctxt_switches") {
				line = l
			}
		}
		return line
	}
	const utime, stime = 14, 15
	hot := func() string {
		for _, task := range threads {
			if ticks(task, utime) >= 10 {
				return task
			}
		}
		return ""
	}
	await(t, "a hot thread", func() bool { return hot() != "" })
	task := hot()
	user, system, switches := ticks(task, utime), ticks(task, stime), voluntary(task)
	await(t, "0.3 s of user time", func() bool { return ticks(task, utime) >= user+30 })
	if got := ticks(task, stime); got > system+1 {
		t.Errorf("system time rose by %d ticks, want none", got-system)
	}
	if got := voluntary(task); got != switches {
		t.Errorf("%q became %q, want no voluntary switch", switches, got)
	}
}

func TestLab_EveryWorkerCanSpin(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := pids(awaitAllReady(t, l))
		spinning, err := l.Spin(lab.DefaultWorkers)
		slices.Sort(spinning)
		if err != nil || !slices.Equal(spinning, before) {
			t.Fatalf("Spin = %v, %v, want %v", spinning, err, before)
		}
		await(t, "nobody answers", func() bool { _, err := get(l.Addr(), short); return err != nil })
		if err := l.KillOnce(); err != nil {
			t.Fatal(err)
		}
		await(t, "new workers serve", func() bool { _, err := get(l.Addr(), short); return err == nil })
	})
}

func TestLab_ClosedListenersAreGoneAndReopenHeals(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := pids(awaitAllReady(t, l))
		held := sockets(t, before[0])
		if err := l.CloseListeners(); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.DialTimeout("tcp", l.Addr().String(), patience); err == nil {
			conn.Close()
			t.Error("dial connected, want connection refused")
		}
		await(t, "the worker has let go of the socket", func() bool { return sockets(t, before[0]) == held-1 })
		if s := status(t, l); !slices.Equal(pids(s), before) || s.Deaths != 0 {
			t.Errorf("workers %v, %d deaths; want %v alive", pids(s), s.Deaths, before)
		}
		old := watch(t, before...)
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		old()
		awaitAllReady(t, l)
		mustServe(t, l)
	})
}

func TestLab_AnImposterAnswersInTheWorkersPlaceUntilEvicted(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		workers := pids(awaitAllReady(t, l))
		shared := status(t, l).Listener == lab.Shared
		if err := l.StealPort(); err != nil {
			t.Fatal(err)
		}
		imposter := l.ImposterPID()
		mine, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", workers[0]))
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", imposter))
		if err != nil || theirs == mine {
			t.Errorf("the imposter runs %q, %v, want another program than %q", theirs, err, mine)
		}
		if ppid := stat(t, imposter)(4); ppid == strconv.Itoa(l.PID()) {
			t.Error("the imposter is a child of main, want a stranger")
		}
		wrong, right := 0, 0
		await(t, "both answer, or the imposter alone", func() bool {
			body, err := get(l.Addr(), patience)
			switch {
			case err != nil:
				t.Errorf("get: %v", err)
			case strings.HasPrefix(body, "hello from worker"):
				right++
			default:
				wrong++
			}
			return wrong > 0 && (right > 0 || shared && wrong == 10)
		})
		if shared && right > 0 {
			t.Errorf("workers answer %d times beside %d of the imposter, want none: their socket is shut", right, wrong)
		}
		if err := l.StealPort(); err == nil {
			t.Error("a second theft = nil, want an error")
		}
		ended := watch(t, imposter)
		if err := l.EvictImposter(); err != nil {
			t.Fatal(err)
		}
		ended()
		if _, err := os.Stat(filepath.Dir(theirs)); !os.IsNotExist(err) {
			t.Errorf("the copy %s: %v, want it gone", theirs, err)
		}
		awaitAllReady(t, l)
		for range 10 {
			mustServe(t, l)
		}
	})
}

func TestLab_StopEndsAnImposter(t *testing.T) {
	l := start(t, lab.Options{})
	if err := l.StealPort(); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", l.ImposterPID()))
	if err != nil {
		t.Fatal(err)
	}
	ended := watch(t, l.ImposterPID())
	l.Stop()
	ended()
	if _, err := os.Stat(filepath.Dir(exe)); !os.IsNotExist(err) {
		t.Errorf("the copy %s: %v, want it gone", exe, err)
	}
}

func TestLab_AKilledMainIsRestartedOnItsPort(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		workers, main, addr := pids(awaitAllReady(t, l)), l.PID(), l.Addr()
		ended := watch(t, workers...)
		if err := l.Restart(); err == nil {
			t.Error("Restart() while main lives = nil, want an error")
		}
		if err := l.KillMain(); err != nil {
			t.Fatal(err)
		}
		ended()
		<-l.Done()
		if text, err := os.ReadFile(l.PIDFile()); err != nil || string(text) != fmt.Sprintf("%d\n", main) {
			t.Errorf("pid file = %q, %v, want that of the dead main", text, err)
		}
		if _, err := l.Status(); err == nil {
			t.Error("Status() of a dead main = nil, want an error")
		}
		if err := l.Restart(); err != nil {
			t.Fatal(err)
		}
		if l.PID() == main || l.Addr() != addr {
			t.Errorf("main %d on %s, want another than %d on %s", l.PID(), l.Addr(), main, addr)
		}
		awaitAllReady(t, l)
		mustServe(t, l)
	})
}

func TestLab_MainLoopsUntilRestarted(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		mains := map[string]bool{}
		see := func() int {
			if text, err := os.ReadFile(l.PIDFile()); err == nil {
				mains[string(text)] = true
			}
			return len(mains)
		}
		see()
		if err := l.LoopMain(); err != nil {
			t.Fatal(err)
		}
		await(t, "the pid file names three more mains", func() bool { return see() == 4 })
		if body, err := get(l.Addr(), short); err == nil {
			t.Errorf("get = %q, want no answer", body)
		}
		if err := l.Restart(); err != nil {
			t.Fatal(err)
		}
		awaitAllReady(t, l)
		mustServe(t, l)
		if err := syscall.Kill(l.PID(), 0); err != nil {
			t.Errorf("main: %v", err)
		}
	})
}

func TestLab_StopEndsALoopOfMains(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		l := start(t, lab.Options{})
		dir := filepath.Dir(l.PIDFile())
		if err := l.LoopMain(); err != nil {
			t.Fatal(err)
		}
		if restarted {
			if err := l.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		l.Stop()
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the directory %s: %v, want it gone", dir, err)
		}
		if err := l.LoopMain(); err == nil {
			t.Error("LoopMain() after Stop = nil, want an error")
		}
		if err := l.StealPort(); err == nil {
			t.Error("StealPort() after Stop = nil, want an error")
		}
	}
}

func TestLab_RefusesAWorkerThatIsNone(t *testing.T) {
	l := start(t, lab.Options{})
	if err := l.KillWorker(1); err == nil {
		t.Error("KillWorker(1) = nil, want an error: it is no worker")
	}
	for _, n := range []int{0, lab.DefaultWorkers + 1} {
		if pids, err := l.Spin(n); err == nil {
			t.Errorf("Spin(%d) = %v, want an error", n, pids)
		}
	}
	mustServe(t, l)
}
