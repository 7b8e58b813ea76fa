package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestDemo_CrashLoopPagesOnce(t *testing.T) {
	t.Parallel()
	report := filepath.Join(t.TempDir(), "report.json")
	stdout, stderr, code := runCommand(t, "demo", "--once", "--fault", "crash-loop", "--listener", lab.Reuseport, "--json", report)
	if code != 0 {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	for _, want := range []string{"alive: healthy", "VERDICT", "PAGE", "RESOLVED"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the story lacks %q:\n%s", want, stdout)
		}
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(readFile(t, report)), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"fault": "crash-loop", "listener": "reuseport", "respawn_pacing_ms": 100.0,
		"verdict": "down", "cause": "workers_crash_looping", "pages": 1.0, "resolves": 1.0, "tickets": 0.0, "ticketed_at": nil} {
		if got[key] != want {
			t.Errorf("report: %s is %v, want %v", key, got[key], want)
		}
	}
	last := ""
	for _, key := range []string{"injected_at", "first_evidence_at", "verdict_at", "paged_at", "healed_at", "resolved_at"} {
		at, _ := got[key].(string)
		if at < last { // RFC 3339 in UTC with a fixed width sorts as text
			t.Errorf("report: %s is %q, before %q", key, at, last)
		}
		last = at
	}
	if evidence, _ := got["evidence"].([]any); len(evidence) == 0 {
		t.Error("report: no evidence")
	}
}

// TestDemo_EndsAsItMust runs the kinds of fault there are beside the crash loop,
// one listener mode each; make demo-faults runs all of them in both.
func TestDemo_EndsAsItMust(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault, listener string
		says            []string
	}{
		{"freeze-all", lab.Shared, []string{"alive: healthy", "workers_frozen", "PAGE", "RESOLVED"}},
		{"freeze-one", lab.Shared, []string{"alive: healthy", "workers_frozen", "TICKET", "RESOLVED"}},
		{"steal-port", lab.Shared, []string{"alive: healthy", "port_stolen", "PAGE", "RESOLVED"}},
		{"main-loop", lab.Reuseport, []string{"main_crash_looping", "PAGE", "RESOLVED"}},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := runCommand(t, "demo", "--once", "--fault", tt.fault, "--listener", tt.listener)
			if code != 0 {
				t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
			}
			for _, want := range tt.says {
				if !strings.Contains(stdout, want) {
					t.Errorf("the story lacks %q:\n%s", want, stdout)
				}
			}
		})
	}
}

func TestDemo_RefusesWhatItDoesNotKnow(t *testing.T) {
	_, stderr, code := runCommand(t, "demo", "--once", "--fault", "earthquake")
	if code != 2 || !strings.Contains(stderr, "crash-loop, close-listener, kill-once, healthy-reload, freeze-all") {
		t.Errorf("exit %d, %q; want 2 and the list of faults", code, stderr)
	}
	if _, stderr, code = runCommand(t, "demo", "--listener", "none"); code != 2 || !strings.Contains(stderr, "reuseport") {
		t.Errorf("exit %d, %q; want 2 and the list of listeners", code, stderr)
	}
}

func TestCheck_ExitsByOutcome(t *testing.T) {
	l := startLab(t, lab.Shared)
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer failing.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := nobody.Addr().String()
	nobody.Close()
	for _, tt := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"a page that is served", []string{"http", "http://" + l.Addr().String() + "/"}, 0, []string{"PASS", "connect", "wait", "200"}},
		{"a bad gateway", []string{"http", failing.URL}, 1, []string{"FAIL status", "502", "curl"}},
		{"a closed port", []string{"http", "http://" + closed + "/"}, 1, []string{"FAIL connect_refused"}},
		{"a port somebody owns", []string{"port", l.Addr().String()}, 0, []string{"PASS", "worker", "alive"}},
		{"a port nobody owns", []string{"port", closed}, 1, []string{"FAIL not_listening"}},
		{"workers that serve", []string{"workers", "--pidfile", l.PIDFile()}, 0, []string{"PASS", "main", "worker", "4 workers serve"}},
		{"no pid file", []string{"workers", "--pidfile", "/nonexistent.pid"}, 3, []string{"BLIND main_unknown", "/nonexistent.pid"}},
		{"no target", []string{"http"}, 2, nil},
		{"not an address", []string{"port", "8080"}, 2, nil},
		{"a hostname that is a pattern", []string{"http", "http://example.com:70000/"}, 2, nil},
		{"neither pid file nor port", []string{"workers"}, 2, nil},
		{"an unknown kind", []string{"smoke", "signal"}, 2, nil},
		{"an unknown output", []string{"port", closed, "--output", "xml"}, 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := runCommand(t, append([]string{"check"}, tt.args...)...)
			if code != tt.code {
				t.Errorf("exit %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.says {
				if !strings.Contains(stdout, want) {
					t.Errorf("says\n%s\nwant %q", stdout, want)
				}
			}
			if tt.code == 2 && stderr == "" {
				t.Error("says nothing on stderr")
			}
		})
	}
}

func TestCheck_NamesACrashLoop(t *testing.T) {
	t.Parallel()
	for _, listener := range []string{lab.Shared, lab.Reuseport} {
		l := startLab(t, listener)
		if err := l.AddRoute("example.com/", "app-4711"); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := runCommand(t, "check", "workers", "--pidfile", l.PIDFile())
		if code != 1 || !strings.Contains(stdout, "cause workers_crash_looping") {
			t.Errorf("%s listener: exit %d, want 1 and the cause\n%s%s", listener, code, stdout, stderr)
		}
	}
}

func TestCheck_PrintsJSON(t *testing.T) {
	l := startLab(t, lab.Reuseport)
	stdout, _, code := runCommand(t, "check", "port", l.Addr().String(), "--output", "json")
	var got struct {
		Finding struct {
			Outcome  string
			Listener struct {
				Sockets int
				Owners  []struct{ PID int }
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != 0 || got.Finding.Outcome != "pass" || got.Finding.Listener.Sockets != 4 || len(got.Finding.Listener.Owners) != 4 {
		t.Errorf("exit %d, %+v; want 4 sockets with 4 owners", code, got)
	}
}

func TestConfigCheck_ReportsEveryFaultWithLineAndPath(t *testing.T) {
	path := write(t, t.TempDir(), "crosscheck.yml", `services:
  - name: web
    checks:
      - http: {url: "http://example.com:70000/"}
      - http: {url: "http://ok.example/", host: "example.com/"}
        interval: 30
      - {port: {address: "127.0.0.1:80"}, workers: {pid_file: /run/x.pid}}
      - {name: odd, colour: red, http: {url: "http://ok.example/"}}
`)
	stdout, _, code := runCommand(t, "config", "check", path)
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, want := range []string{
		path + ":4: services[0].checks[0].http.url:", path + ":5: services[0].checks[1].http.host:",
		path + ":6: services[0].checks[1].interval:", path + ":7: services[0].checks[2]", path + ":8: services[0].checks[3].colour:",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
}
