//go:build linux

package httpcheck_test

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// skipOrFail skips, or fails where skips are forbidden.
func skipOrFail(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// lookVar makes this test binary look once at the URL in it and print the
// finding.
const lookVar = "CROSSCHECK_HTTPCHECK_TEST_LOOK"

func TestMain(m *testing.M) {
	u := os.Getenv(lookVar)
	if u == "" {
		os.Exit(m.Run())
	}
	check, err := httpcheck.New(httpcheck.Config{URL: u})
	if err != nil {
		log.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode(check.Look(context.Background()))
}

func TestLook_WithoutARouteOfOurOwnIsBlindAndHeedsNoProxy(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), lookVar+"=http://192.0.2.1/", "HTTP_PROXY=http://127.0.0.1:1") // RFC 5737: nobody's
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET}
	out, err := cmd.Output()
	if err != nil {
		skipOrFail(t, "a network namespace without routes cannot be had: %v", err)
	}
	var f checks.Finding
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatalf("finding %q: %v", out, err)
	}
	mustHold(t, f)
	want(t, f, checks.Blind, checks.ReasonOwnNetwork, "no route", "connect")
	if f.HTTP.Address != "192.0.2.1:80" {
		t.Errorf("dialled %q, want the target and not the environment's proxy", f.HTTP.Address)
	}
}

func TestLook_OutOfDescriptorsIsBlind(t *testing.T) {
	u := serve(t, func(http.ResponseWriter, *http.Request) {})
	look(t, httpcheck.Config{URL: u}) // what the runtime opens once is open
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	next, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(next)
	// A descriptor below the limit may come free meanwhile: fill them up.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next) + 8, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var filler []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		filler = append(filler, fd)
	}
	check, err := httpcheck.New(httpcheck.Config{URL: u, Timeout: long})
	f := check.Look(t.Context())
	for _, fd := range filler {
		syscall.Close(fd)
	}
	if err := errorsOf(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)); err != nil {
		t.Fatal(err)
	}
	mustHold(t, f)
	want(t, f, checks.Blind, checks.ReasonOwnLimit, "file descriptors", "connect")
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLook_LeavesNothingRunning(t *testing.T) {
	servers := []string{fullBacklog(t), backlog(t), tlsPort(backlog)(t), closedPort(t)}
	before := runtime.NumGoroutine()
	for _, u := range servers {
		for range 3 {
			look(t, httpcheck.Config{URL: u, Timeout: short / 3})
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(long)
	for runtime.NumGoroutine() > before {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%d goroutines, %d before the looks", runtime.NumGoroutine(), before)
		}
	}
}
