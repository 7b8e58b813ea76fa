package embedded_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
)

// The cases D2 and E to H are those measured on Alertmanager 0.25; here they hold
// on the version we embed. A killed instance is one that is never closed before
// its successor opens the directory.

func TestRestart_D2_ResolveOfAnAlertThatOnlyTheLogRemembersIsSent(t *testing.T) {
	t.Parallel()
	p, dir := newPager(t), t.TempDir()
	first := open(t, paging(dir, p), embedded.Deps{})
	post(t, first, fire("i1", "page"))
	p.wants(t, "i1 page firing")
	first.Close()

	second := open(t, paging(dir, p), embedded.Deps{})
	post(t, second, resolve("i1", "page"))
	p.wants(t, "i1 page resolved")
	post(t, second, resolve("i1", "page")) // our resend
	p.staysQuiet(t)
}

func TestRestart_E_CleanRestartThenTheSameFiringAlertSendsNothing(t *testing.T) {
	t.Parallel()
	p, dir := newPager(t), t.TempDir()
	first := open(t, paging(dir, p), embedded.Deps{})
	post(t, first, fire("i1", "page"))
	p.wants(t, "i1 page firing")
	first.Close()

	second := open(t, paging(dir, p), embedded.Deps{})
	post(t, second, fire("i1", "page"))
	p.staysQuiet(t)
	post(t, second, resolve("i1", "page"))
	p.wants(t, "i1 page resolved")
}

func TestRestart_F_KilledThenTheSameFiringAlertSendsNothing(t *testing.T) {
	t.Parallel()
	p, dir := newPager(t), t.TempDir()
	killed := open(t, paging(dir, p), embedded.Deps{})
	post(t, killed, fire("i1", "page"))
	p.wants(t, "i1 page firing")
	onDisk(t, dir, "nflog", 1)

	second := open(t, paging(dir, p), embedded.Deps{})
	post(t, second, fire("i1", "page"))
	p.staysQuiet(t)
	post(t, second, resolve("i1", "page"))
	p.wants(t, "i1 page resolved")
}

// TestRestart_F_RealKill is case F with a process of its own and SIGKILL.
func TestRestart_F_RealKill(t *testing.T) {
	t.Parallel()
	p, dir := newPager(t), t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestChildThatIsKilled$")
	child.Env = append(os.Environ(), "EMBEDDED_TEST_DIR="+dir, "EMBEDDED_TEST_PAGER="+p.url)
	if err := child.Start(); err != nil {
		t.Fatalf("start child: %v", err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	p.wants(t, "i1 page firing")
	onDisk(t, dir, "nflog", 1)
	if err := child.Process.Kill(); err != nil {
		t.Fatalf("kill child: %v", err)
	}
	child.Wait()

	am := open(t, paging(dir, p), embedded.Deps{})
	post(t, am, fire("i1", "page"))
	p.staysQuiet(t)
	post(t, am, resolve("i1", "page"))
	p.wants(t, "i1 page resolved")
}

// TestChildThatIsKilled does nothing unless TestRestart_F_RealKill runs it.
func TestChildThatIsKilled(t *testing.T) {
	dir := os.Getenv("EMBEDDED_TEST_DIR")
	if dir == "" {
		return
	}
	am := open(t, embedded.Config{Dir: dir, Raw: embedded.DefaultConfig(os.Getenv("EMBEDDED_TEST_PAGER"))}, embedded.Deps{})
	post(t, am, fire("i1", "page"))
	<-time.After(time.Minute) // killed long before
}

func TestRestart_G_AnEndThatIsShorterThanTheResendMakesAFlap(t *testing.T) {
	// Why the sender sets the end four minutes ahead.
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	begun := time.Now()
	post(t, am, alert("i1", "page", begun, begun.Add(3*time.Second)))
	p.wants(t, "i1 page firing", "i1 page resolved")
	post(t, am, fire("i1", "page"))
	p.wants(t, "i1 page firing")
}

func TestRestart_H_WithoutAnEndAlertmanagerChoosesOne(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	begun := time.Now()
	post(t, am, alert("i1", "page", begun, time.Time{}))
	p.wants(t, "i1 page firing")
	_, body := call(t, am, "GET", "/api/v2/alerts", nil)
	var alerts []struct {
		EndsAt time.Time `json:"endsAt"`
	}
	if err := json.Unmarshal(body, &alerts); err != nil || len(alerts) != 1 {
		t.Fatalf("GET alerts: %v, %s", err, body)
	}
	// The API tells times in whole milliseconds.
	if in := alerts[0].EndsAt.Sub(begun); in < 5*time.Minute-time.Millisecond || in > 5*time.Minute+patience {
		t.Errorf("endsAt: got %s from now, want resolve_timeout, 5m", in)
	}
}

func TestRestart_SilenceOutlivesAKill(t *testing.T) {
	t.Parallel()
	p, dir := newPager(t), t.TempDir()
	killed := open(t, paging(dir, p), embedded.Deps{})
	silenceIncident(t, killed, "i1")
	onDisk(t, dir, "silences", 1)

	second := open(t, paging(dir, p), embedded.Deps{})
	post(t, second, fire("i1", "page"), fire("i2", "page"))
	p.wants(t, "i2 page firing")
	p.staysQuiet(t)
}

func TestRestart_CorruptStateIsMovedAsideAndTheStartGoesOn(t *testing.T) {
	t.Parallel()
	for _, content := range []struct{ name, bytes string }{
		{"text", "this is no notification log"},
		{"cut short", "\xff\x01\x02"},
		{"zeros", strings.Repeat("\x00", 64)},
	} {
		t.Run(content.name, func(t *testing.T) {
			t.Parallel()
			p, dir := newPager(t), t.TempDir()
			for _, file := range []string{"nflog", "silences"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content.bytes), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log logBuffer
			am := open(t, paging(dir, p), embedded.Deps{Log: slog.New(slog.NewTextHandler(&log, nil))})
			post(t, am, fire("i1", "page"))
			p.wants(t, "i1 page firing")
			for _, file := range []string{"nflog", "silences"} {
				aside, err := filepath.Glob(filepath.Join(dir, file+".corrupt-*"))
				if err != nil || len(aside) != 1 {
					t.Fatalf("moved aside: got %v, %v, want one %s.corrupt-*", aside, err, file)
				}
				kept, err := os.ReadFile(aside[0])
				if err != nil || string(kept) != content.bytes {
					t.Errorf("%s: got %q, %v, want the corrupt bytes", aside[0], kept, err)
				}
				if !strings.Contains(log.String(), aside[0]) {
					t.Errorf("log does not name %s:\n%s", aside[0], log.String())
				}
			}
		})
	}
}

func TestClose_WritesSnapshotsAndCanBeCalledTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	am := open(t, embedded.Config{Dir: dir}, embedded.Deps{})
	for range 2 {
		if err := am.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	for _, file := range []string{"nflog", "silences"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
