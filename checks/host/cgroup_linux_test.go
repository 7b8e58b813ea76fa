package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// controlGroup makes a group of its own for a test, in the first of the
// hierarchies that is there, and removes it in the end.
func controlGroup(t *testing.T, dirs ...string) (dir, path string) {
	t.Helper()
	for _, root := range dirs {
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
			continue
		}
		path = fmt.Sprintf("/crosscheck-test-%d-%s", os.Getpid(), strings.Map(func(r rune) rune {
			if r == '/' || r == ' ' {
				return '_'
			}
			return r
		}, t.Name()))
		if err := os.Mkdir(root+path, 0o755); err != nil {
			without(t, "control groups may not be made: "+err.Error())
		}
		t.Cleanup(func() {
			eventually(t, "the control group to go", func() bool {
				err := os.Remove(root + path)
				return err == nil || errors.Is(err, fs.ErrNotExist)
			})
		})
		return root + path, path
	}
	without(t, fmt.Sprintf("none of %v is mounted", dirs))
	return "", ""
}

var (
	unified = []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}
	freezer = []string{"/sys/fs/cgroup/freezer"}
	memory  = []string{"/sys/fs/cgroup/memory"}
)

func put(t *testing.T, file string, what any) {
	t.Helper()
	if err := os.WriteFile(file, []byte(fmt.Sprint(what)), 0); err != nil {
		t.Fatal(err)
	}
}

// enter moves a server's main and its workers into a group.
func enter(t *testing.T, dir string, pid int) {
	t.Helper()
	put(t, dir+"/cgroup.procs", pid)
	for _, k := range childrenOf(t, pid) {
		put(t, dir+"/cgroup.procs", k)
	}
}

func childrenOf(t *testing.T, pid int) (kids []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		kids = append(kids, strings.Fields(string(b))...)
	}
	return kids
}

func TestCgroup_FrozenProcessesAreStopped(t *testing.T) {
	for name, tt := range map[string]struct {
		roots                    []string
		file, freeze, thaw, path string
	}{
		"v2": {unified, "/cgroup.freeze", "1", "0", "x"},
		"v1": {freezer, "/freezer.state", "FROZEN", "THAWED", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := controlGroup(t, tt.roots...)
			s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
			enter(t, dir, s.PID)
			t.Cleanup(func() { put(t, dir+tt.file, tt.thaw) })
			o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
			until(t, o, "2 workers", func(s host.Snapshot) bool { return healthy(2)(s) && (tt.path == "" || s.Cgroup == path) })
			put(t, dir+tt.file, tt.freeze)
			until(t, o, "all frozen", func(s host.Snapshot) bool {
				for _, p := range append([]host.Process{s.Main.Process}, s.Workers...) {
					if p.State != checks.ProcStopped || !p.CgroupFrozen || p.StoppedSince == 0 {
						return false
					}
				}
				return len(s.Workers) == 2
			})
			put(t, dir+tt.file, tt.thaw)
			until(t, o, "all alive", func(s host.Snapshot) bool {
				return healthy(2)(s) && s.Workers[0].State == checks.ProcAlive && !s.Workers[0].CgroupFrozen && s.Workers[0].StoppedSince == 0
			})
		})
	}
}

func TestCgroup_OneFrozenAfterItWasMoved(t *testing.T) {
	t.Parallel()
	dir, _ := controlGroup(t, unified...)
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	before := until(t, o, "2 workers", healthy(2))
	put(t, dir+"/cgroup.procs", before.Workers[1].PID)
	put(t, dir+"/cgroup.freeze", "1")
	t.Cleanup(func() { put(t, dir+"/cgroup.freeze", "0") })
	s2 := until(t, o, "one frozen", func(s host.Snapshot) bool { return s.Workers[1].CgroupFrozen })
	if s2.Workers[0].CgroupFrozen || s2.Main.Process.CgroupFrozen {
		t.Errorf("main %+v, worker %+v; want them not frozen", s2.Main.Process, s2.Workers[0])
	}
}

func TestCgroup_ProcessesKilledForMemoryAreCounted(t *testing.T) {
	t.Parallel()
	dir, _ := controlGroup(t, memory...)
	put(t, dir+"/memory.limit_in_bytes", 128<<20)
	s := hosttest.Start(t, hosttest.Options{Workers: 1, Shared: true, Respawn: time.Second})
	enter(t, dir, s.PID)
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}})
	before := until(t, o, "the group's count", func(s host.Snapshot) bool { return healthy(1)(s) && !s.OOMUnknown })
	if before.OOMKills != 0 {
		t.Fatalf("OOMKills = %d in a new group, want 0", before.OOMKills)
	}
	for want := uint64(1); want <= 2; want++ {
		glutton := exec.Command("sh", "-c", "echo $$ > "+dir+"/cgroup.procs; exec tail /dev/zero") // it keeps the last line, however long
		if err := glutton.Run(); err == nil {
			t.Fatal("the glutton was not killed")
		}
		until(t, o, fmt.Sprintf("%d kills", want), func(s host.Snapshot) bool { return s.OOMKills == want })
	}
}

func TestCgroup_MainAndWorkersByGroup(t *testing.T) {
	t.Parallel()
	dir, path := controlGroup(t, unified...)
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: time.Second})
	enter(t, dir, s.PID)
	// One that nobody of them forked, as a double-forked worker.
	lone := exec.Command("sleep", "60")
	lone.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := lone.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lone.Process.Kill(); lone.Wait() })
	put(t, dir+"/cgroup.procs", lone.Process.Pid)

	kids := observe(t, host.Target{Cgroup: path, Listeners: []netip.AddrPort{s.Addr}})
	all := observe(t, host.Target{Cgroup: path, WorkersBy: "cgroup", Listeners: []netip.AddrPort{s.Addr}})
	named := observe(t, host.Target{PIDFile: s.PIDFile, WorkersBy: "name", WorkerName: "^sleep$", Listeners: []netip.AddrPort{s.Addr}})
	got := until(t, kids, "main by group, its children", healthy(2))
	if got.Main.Process.PID != s.PID || got.Cgroup != "" && got.Cgroup != path {
		t.Errorf("main %d in %q, want %d in %q", got.Main.Process.PID, got.Cgroup, s.PID, path)
	}
	until(t, all, "all others of the group", func(x host.Snapshot) bool { return x.Main.Process.PID == s.PID && len(x.Workers) == 3 })
	until(t, named, "the one that is named so", func(x host.Snapshot) bool {
		return len(x.Workers) == 1 && x.Workers[0].PID == lone.Process.Pid
	})
	lone.Process.Kill()
	lone.Wait()
	for _, o := range []*host.Observer{all, named} {
		until(t, o, "the death of the one that main did not fork", func(x host.Snapshot) bool {
			for _, e := range x.Events {
				if e.Kind == host.Death && e.Process.PID == lone.Process.Pid {
					return true
				}
			}
			return false
		})
	}
	for _, e := range mustSnapshot(t, all).Events {
		if e.Kind == host.Unseen {
			t.Errorf("event %+v, want none unseen: main reaps what are no workers", e)
		}
	}
}

func mustSnapshot(t *testing.T, o *host.Observer) host.Snapshot {
	t.Helper()
	s, ok := o.Snapshot("it")
	if !ok {
		t.Fatal("no snapshot")
	}
	return s
}
