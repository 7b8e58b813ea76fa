package host

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// sleeper starts a process that does nothing.
func sleeper(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill() // not if it is over
		_ = cmd.Wait()         // killed
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func TestKeep_FilesOfAProcessOutliveItNotItsLastUser(t *testing.T) {
	for name, room := range map[string]int{"with room": 10, "without": 0} {
		t.Run(name, func(t *testing.T) {
			pid, end := sleeper(t)
			fs := newProcfs("/proc")
			fs.kept, fs.openMost = map[int]*keptFiles{}, room
			before := descriptors(t)
			fs.keep(pid)
			fs.keep(pid) // two targets share it
			for range 3 {
				if s, err := fs.stat(pid); err != nil || s.pid != pid {
					t.Fatalf("stat(%d) = %+v, %v", pid, s, err)
				}
				if _, err := fs.sched(pid); err != nil {
					t.Fatalf("sched(%d): %v", pid, err)
				}
				if _, err := fs.children(pid, nil); err != nil {
					t.Fatalf("children(%d): %v", pid, err)
				}
			}
			if open := descriptors(t) - before; open != fs.open || open != min(room, 3) {
				t.Errorf("%d descriptors kept, counted %d, want 3 with room and 0 without", open, fs.open)
			}
			end()
			if s, err := fs.stat(pid); !gone(err) {
				t.Errorf("stat(%d) = %+v, %v after it was reaped, want gone", pid, s, err)
			}
			fs.release(pid)
			if fs.kept[pid] == nil {
				t.Error("released for both by one")
			}
			fs.release(pid)
			// What started the process has closed one of its own meanwhile.
			if open := descriptors(t) - before; open > 0 || len(fs.kept) != 0 || fs.open != 0 {
				t.Errorf("%d descriptors left over, %d kept, counted %d", open, len(fs.kept), fs.open)
			}
		})
	}
}

func TestCPUClock_StandsStillWhileNothingRuns(t *testing.T) {
	pid, _ := sleeper(t)
	fs := newProcfs("/proc")
	in := func(state byte) time.Duration { // what the clock shows when it got there
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
			a, _ := cpuClock(pid)
			s, err := fs.stat(pid)
			if b, ok := cpuClock(pid); ok && err == nil && a == b && s.state == state && s.comm == "sleep" {
				return b
			}
		}
		t.Fatalf("it is never in state %c", state)
		return 0
	}
	asleep := in('S')
	if again, ok := cpuClock(pid); !ok || again != asleep || asleep == 0 {
		t.Errorf("its clock shows %v after %v, %t; want it to stand still, above 0", again, asleep, ok)
	}
	// To stop it has to run: that is what sweeps rely on.
	if err := exec.Command("kill", "-STOP", strconv.Itoa(pid)).Run(); err != nil {
		t.Fatal(err)
	}
	if stopped := in('T'); stopped <= asleep {
		t.Errorf("its clock shows %v when it was stopped, %v before; want more", stopped, asleep)
	}
	if _, ok := cpuClock(maxPID); ok {
		t.Error("a pid that cannot be has a clock")
	}
}
