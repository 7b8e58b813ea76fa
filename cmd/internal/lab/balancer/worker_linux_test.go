package balancer

import (
	"os"
	"syscall"
	"testing"
)

// runOnce starts a worker, tells it the given lines and then nothing more, and
// returns how it ended.
func runOnce(t *testing.T, said string) syscall.WaitStatus {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := os.StartProcess(exe, []string{WorkerArg, string(Reuseport), "127.0.0.1", "0"}, &os.ProcAttr{Files: []*os.File{in, null, null}})
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	ours.WriteString(said)
	ours.Close()
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return state.Sys().(syscall.WaitStatus)
}

func TestWorker_AHostnameWithASlashAbortsIt(t *testing.T) {
	got := runOnce(t, `{"op":"add","host":"example.com/","backend":""}`+"\n")
	if !got.Signaled() || got.Signal() != syscall.SIGABRT || got.CoreDump() {
		t.Errorf("wait status %#x, want SIGABRT without a core file", got)
	}
}

func TestWorker_EndsInOrderWhenMainIsGone(t *testing.T) {
	got := runOnce(t, `{"op":"add","host":"example.com","backend":""}`+"\n"+`{"op":"serve"}`+"\n")
	if !got.Exited() || got.ExitStatus() != 0 {
		t.Errorf("wait status %#x, want exit 0", got)
	}
}

func TestWorker_EndsOnWhatMainWouldNeverSay(t *testing.T) {
	if got := runOnce(t, "hello\n"); !got.Exited() || got.ExitStatus() != 3 {
		t.Errorf("wait status %#x, want exit 3", got)
	}
}

func TestParseEndpoint(t *testing.T) {
	if e, err := parseEndpoint("127.0.0.1", "8080"); err != nil || e.String() != "127.0.0.1:8080" {
		t.Errorf("parseEndpoint = %s, %v", e, err)
	}
	for _, row := range [][2]string{{"", "1"}, {"127.0.0", "1"}, {"127.0.0.1.1", "1"}, {"127..0.1", "1"}, {"256.0.0.1", "1"}, {"a.0.0.1", "1"}, {"127.0.0.1", "70000"}, {"127.0.0.1", "-1"}, {"127.0.0.1", ""}} {
		if e, err := parseEndpoint(row[0], row[1]); err == nil {
			t.Errorf("parseEndpoint(%q, %q) = %s, want an error", row[0], row[1], e)
		}
	}
}
