//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary play the roles that this program plays.
func TestMain(m *testing.M) {
	if role, ok := roles()[firstArg()]; ok {
		if err := role(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// running lists the command lines that name a folder.
func running(dir string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(raw), dir) {
			found = append(found, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return found
}

func TestRunJob_LeavesNothingWhenItIsCutShort(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
			t.Fatal("namespaces need root")
		}
		t.Skip("namespaces need root")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := runJob(ctx, job{Cell: cellID{"lab", "idle", 1}, Dir: dir, Group: "crosscheck-faults-test"})
		ended <- err
	}()
	started := func() bool { _, err := os.Stat(dir + "/server/crosscheck.yml"); return err == nil }
	for deadline := time.Now().Add(20 * time.Second); !started(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the cell ended before it was watched: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the cell did not start")
		}
	}
	if len(running(dir)) == 0 {
		t.Error("a cell that runs is not seen, so that its end would not be either")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("runJob: %v, want %v", err, context.Canceled)
	}
	for deadline := time.Now().Add(10 * time.Second); len(running(dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", running(dir))
		}
	}
}
