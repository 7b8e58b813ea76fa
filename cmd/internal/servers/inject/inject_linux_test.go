package inject_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers/inject"
)

// TestMain lets the test binary be the victim: it listens, says where, and
// answers each line on its standard input.
func TestMain(m *testing.M) {
	if os.Getenv("CROSSCHECK_VICTIM") == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		os.Exit(2)
	}
	defer l.Close()
	fmt.Println(l.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		_, err := os.Open("/dev/null")
		fmt.Println("alive", err)
	}
}

type victim struct {
	pid  int
	addr string
	ask  func() string
}

func start(t *testing.T) victim {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "CROSSCHECK_VICTIM=1")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	answers := bufio.NewScanner(out)
	if !answers.Scan() {
		t.Fatal("the victim did not start")
	}
	return victim{cmd.Process.Pid, answers.Text(), func() string {
		if _, err := in.Write([]byte("?\n")); err != nil {
			return err.Error()
		}
		answers.Scan()
		return answers.Text()
	}}
}

func inserted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, inject.ErrUnsupported) {
		t.Skip(err)
	}
	if errors.Is(err, unix.EPERM) {
		if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
			t.Fatal(err)
		}
		t.Skipf("tracing is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func refused(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func TestCloseFD_OnlyThatDescriptorIsGone(t *testing.T) {
	v := start(t)
	fds, err := inject.Listeners(v.pid)
	inserted(t, err)
	if len(fds) != 1 {
		t.Fatalf("listeners %v, want one", fds)
	}
	inserted(t, inject.CloseFD(v.pid, fds[0]))
	eventually(t, "nobody listening", func() bool { return refused(v.addr) })
	left, err := inject.Descriptors(v.pid)
	if err != nil || slices.Contains(left, fds[0]) {
		t.Errorf("descriptors %v, %v: %d is still there", left, err, fds[0])
	}
	if got := v.ask(); got != "alive <nil>" {
		t.Errorf("afterwards the victim says %q", got)
	}
	if err := inject.CloseFD(v.pid, 4000); !errors.Is(err, unix.EBADF) {
		t.Errorf("close of what is not open: %v, want EBADF", err)
	}
}

func TestShut_KeepsTheDescriptor(t *testing.T) {
	v := start(t)
	before, err := inject.Listeners(v.pid)
	inserted(t, err)
	inserted(t, inject.Shut(v.pid))
	if !refused(v.addr) {
		t.Error("it still listens")
	}
	left, err := inject.Descriptors(v.pid)
	if err != nil || !slices.Contains(left, before[0]) {
		t.Errorf("descriptors %v, %v: %d is gone", left, err, before[0])
	}
	if err := inject.Shut(v.pid); !errors.Is(err, inject.ErrNoListener) {
		t.Errorf("a second time: %v, want %v", err, inject.ErrNoListener)
	}
}

func TestExhaust_NothingOpensAnyMore(t *testing.T) {
	v := start(t)
	inserted(t, inject.Exhaust(v.pid))
	if got := v.ask(); !strings.Contains(got, "too many open files") {
		t.Errorf("the victim opened a file: %q", got)
	}
}

func TestSpin_UsesCPUInUserSpace(t *testing.T) {
	v := start(t)
	inserted(t, inject.Spin(v.pid))
	eventually(t, "CPU time in user space", func() bool { return userTicks(t, v.pid) >= 5 })
}

func TestHang_SleepsForEver(t *testing.T) {
	v := start(t)
	inserted(t, inject.Hang(v.pid))
	eventually(t, "the sleep", func() bool { return state(t, v.pid) == "S" })
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", v.pid))
	if err != nil {
		t.Fatal(err)
	}
	if number := strings.Fields(string(raw))[0]; number != strconv.Itoa(unix.SYS_PAUSE) {
		t.Errorf("it sleeps in system call %s, want pause", number)
	}
}

func TestInject_TellsWhatIsGone(t *testing.T) {
	for name, f := range map[string]func() error{
		"spin": func() error { return inject.Spin(1 << 22) }, "shut": func() error { return inject.Shut(1 << 22) },
		"exhaust": func() error { return inject.Exhaust(1 << 22) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s of no process: no error", name)
		}
	}
}

// stat returns the fields of /proc/PID/stat after the name.
func stat(t *testing.T, pid int) []string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
}

func state(t *testing.T, pid int) string { return stat(t, pid)[0] }

func userTicks(t *testing.T, pid int) int {
	n, err := strconv.Atoi(stat(t, pid)[14-3]) // utime is field 14 (proc_pid_stat(5)), the state field 3
	if err != nil {
		t.Fatal(err)
	}
	return n
}
