package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/console"
	"github.com/crosscheck-project/crosscheck/cmd/internal/pager"
)

// beCrosscheck makes the test binary behave as crosscheck: the tests run real
// processes, and kill them.
const beCrosscheck = "CROSSCHECK_TEST_BE_CROSSCHECK"

func TestMain(m *testing.M) {
	if os.Getenv(beCrosscheck) == "1" {
		main()
	}
	os.Exit(m.Run())
}

// skip skips a test that this machine cannot run; CI forbids that.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") != "" {
		t.Fatalf("CI forbids skips: %s", why)
	}
	t.Skip(why)
}

// command returns crosscheck as a process that dies with us.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beCrosscheck+"=1")
	return cmd
}

// runCommand runs crosscheck to its end and returns its output and exit code.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// server is a running crosscheck serve.
type server struct {
	t   *testing.T
	cmd *exec.Cmd
	url string

	mu  sync.Mutex // guards log
	log strings.Builder
}

// serve starts crosscheck serve and returns when it serves.
func serve(t *testing.T, config string) *server {
	t.Helper()
	s := &server{t: t, cmd: command("serve", "-c", config, "--log.format", "json")}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.kill()
		}
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("log of serve:\n%s", s.log.String())
		}
	})
	ready := make(chan string, 1)
	go s.read(stderr, ready)
	select {
	case s.url = <-ready:
	case <-time.After(60 * time.Second):
	}
	if s.url == "" {
		t.Fatal("serve did not start")
	}
	return s
}

// read keeps the log and finds the console's address in it; an empty address
// says that the log ended first.
func (s *server) read(stderr io.Reader, ready chan<- string) {
	defer close(ready)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		s.mu.Lock()
		fmt.Fprintln(&s.log, lines.Text())
		s.mu.Unlock()
		var line struct{ Msg, Console string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			ready <- line.Console
		}
	}
}

// kill is kill -9.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// stop is SIGTERM; it fails the test if the end is not clean and soon.
func (s *server) stop() {
	s.t.Helper()
	begun := time.Now()
	_ = s.cmd.Process.Signal(os.Interrupt)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("serve ended with %v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		s.t.Errorf("serve took %s to stop, want at most 5s", took)
	}
}

func (s *server) get(path string) string {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

func (s *server) status() console.View {
	s.t.Helper()
	var v console.View
	if err := json.Unmarshal([]byte(s.get("/api/v1/status")), &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// await polls the status until ok; a person would look at the console.
func (s *server) await(what string, ok func(console.View) bool) console.View {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		v := s.status()
		if ok(v) {
			return v
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited 30s for %s; the status is %+v", what, v)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// awaitNotificationLog waits until Alertmanager's notification log on disk has
// the incident.
func (s *server) awaitNotificationLog(config, incident string) {
	s.t.Helper()
	s.await("the notification log", func(console.View) bool {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(config), "data", "alertmanager", "nflog"))
		return err == nil && bytes.Contains(raw, []byte(incident))
	})
}

// settled: the service is up and the agent has learnt its workers.
func settled(v console.View) bool {
	if len(v.Services) == 0 || v.Services[0].Verdict != "up" || len(v.Services[0].Inside) == 0 || len(v.Services[0].Outside) == 0 {
		return false
	}
	for _, l := range append(v.Services[0].Inside, v.Services[0].Outside...) {
		if l.Outcome != "pass" {
			return false
		}
	}
	return true
}

// within is a context for something that must happen soon.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func startPager(t *testing.T) *pager.Pager {
	t.Helper()
	p, err := pager.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// write writes a file into dir and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// configFor writes a configuration that watches one server.
func configFor(t *testing.T, p *pager.Pager, addr, pidFile string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "alertmanager.yml", string(p.AlertmanagerConfig()))
	return write(t, dir, "crosscheck.yml", fmt.Sprintf(`listen: 127.0.0.1:0
places:
  - {name: a, region: par, network: isp-a}
  - {name: b, region: par, network: isp-b}
alertmanager: {config_file: alertmanager.yml}
services:
  - name: web
    region: par
    close_after: 2s
    checks:
      - {interval: 1s, http: {url: "http://%s/", timeout: 1s}}
      - {interval: 1s, port: {address: "%s"}}
      - {interval: 1s, workers: {pid_file: %s}}
`, addr, addr, pidFile))
}
