package hub_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/probe/wire"
	"github.com/crosscheck-project/crosscheck/probe/wire/hub"
)

// childDir tells this test binary to be the process that is killed.
const childDir = "CROSSCHECK_TEST_HUB_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		publishUntilKilled(dir)
	}
	os.Exit(m.Run())
}

func start(t testing.TB, dir string) *hub.Hub {
	t.Helper()
	h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)})
	if err != nil {
		t.Fatalf("Start(%s): %v", dir, err)
	}
	t.Cleanup(h.Stop)
	return h
}

func connect(t testing.TB, h *hub.Hub) *wire.Client {
	t.Helper()
	c, err := wire.Connect(h.InProcess())
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestStart_TheStoreOutlivesAStop(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	h := start(t, dir)
	c := connect(t, h)
	for i := range uint64(3) {
		if _, err := c.Append(t.Context(), i, "step", []byte("x")); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	c.Close()
	h.Stop()
	h.Stop() // twice does no harm

	c = connect(t, start(t, dir))
	last, err := c.ReadJournal(t.Context(), 0, func(wire.Entry) error { return nil })
	if last != 3 || err != nil {
		t.Errorf("after a restart the journal ends at %d, %v, want 3", last, err)
	}
	if _, err := c.Append(t.Context(), 3, "step", nil); err != nil {
		t.Errorf("Append after a restart: %v", err)
	}
}

func TestStart_ASecondHubOnTheDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	_, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)})
	if !errors.Is(err, hub.ErrInUse) {
		t.Fatalf("second Start: %v, want ErrInUse", err)
	}
	for _, want := range []string{dir, strconv.Itoa(os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("message %q does not name %q", err, want)
		}
	}
	first.Stop()
	start(t, dir)
}

func TestStart_RefusesWhatItCannotServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := start(t, t.TempDir())
	_ = taken
	for name, o := range map[string]hub.Options{
		"no directory":                  {Log: testLog(t)},
		"no log":                        {Dir: t.TempDir()},
		"a directory that is a file":    {Dir: file, Log: testLog(t)},
		"a listener open to everybody":  {Dir: t.TempDir(), Log: testLog(t), Listen: netip.MustParseAddrPort("0.0.0.0:0")},
		"a listener open to the street": {Dir: t.TempDir(), Log: testLog(t), Listen: netip.MustParseAddrPort("192.0.2.1:4222")},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := hub.Start(t.Context(), o)
			if err == nil {
				h.Stop()
				t.Error("Start: no error")
			}
		})
	}
}

func TestStart_APortInUseIsAnErrorAndFreesTheLock(t *testing.T) {
	dir := t.TempDir()
	first, err := hub.Start(t.Context(), hub.Options{Dir: t.TempDir(), Log: testLog(t), Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	defer first.Stop()
	o, _ := first.Loopback()
	addr := netip.MustParseAddrPort(strings.TrimPrefix(o.URL, "nats://"))
	if h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t), Listen: addr}); err == nil {
		h.Stop()
		t.Fatal("Start on a port in use: no error")
	}
	start(t, dir)
}

func TestStart_AnEndedContextStartsNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h, err := hub.Start(ctx, hub.Options{Dir: dir, Log: testLog(t)}); err == nil {
		h.Stop()
		t.Fatal("Start with an ended context: no error")
	}
	start(t, dir)
}

func TestStart_ADamagedStreamIsReportedAndLeftAsItIs(t *testing.T) {
	for _, stream := range []string{wire.StreamResults, wire.StreamEvents} {
		for _, file := range []string{"meta.inf", "meta.sum"} {
			t.Run(stream+" "+file, func(t *testing.T) {
				dir := t.TempDir()
				h := start(t, dir)
				c := connect(t, h)
				if _, err := c.Append(t.Context(), 0, "step", []byte("precious")); err != nil {
					t.Fatalf("Append: %v", err)
				}
				c.Close()
				h.Stop()
				store := filepath.Join(dir, "jetstream", "CROSSCHECK", "streams", stream)
				damage(t, filepath.Join(store, file))
				before := tree(t, store)

				h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)})
				if err == nil {
					h.Stop()
				}
				if !errors.Is(err, hub.ErrCorrupt) || !strings.Contains(err.Error(), store) {
					t.Errorf("Start: %v, want ErrCorrupt that names %s", err, store)
				}
				if after := tree(t, store); after != before {
					t.Errorf("the store changed: before\n%safter\n%s", before, after)
				}
			})
		}
	}
}

// journal makes a store with that many entries of about 600 bytes, without the
// server's index, as a kill leaves it, and returns the directory of its blocks.
func journal(t *testing.T, dir string, entries int) (blocks string) {
	t.Helper()
	h := start(t, dir)
	c := connect(t, h)
	for i := range uint64(entries) {
		if _, err := c.Append(t.Context(), i, "step", bytes.Repeat([]byte("precious"), 75)); err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	c.Close()
	h.Stop()
	blocks = filepath.Join(dir, "jetstream", "CROSSCHECK", "streams", wire.StreamEvents, "msgs")
	if err := os.Remove(filepath.Join(blocks, "index.db")); err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestStart_ADamagedJournalIsReportedAndLeftAsItIs(t *testing.T) {
	dir := t.TempDir()
	blocks := journal(t, dir, 20)
	damage(t, filepath.Join(blocks, "1.blk"))
	before, err := os.ReadFile(filepath.Join(blocks, "1.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // refused the second time as well
		h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)})
		if err == nil {
			h.Stop()
		}
		if !errors.Is(err, hub.ErrCorrupt) || !strings.Contains(err.Error(), blocks) {
			t.Errorf("Start: %v, want ErrCorrupt that names %s", err, blocks)
		}
	}
	if after, err := os.ReadFile(filepath.Join(blocks, "1.blk")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the block changed from %d to %d bytes, %v", len(before), len(after), err)
	}
}

func TestStart_AJournalCutInTheMiddleOfItsLastRecordLosesOnlyThat(t *testing.T) {
	for _, cut := range []int64{1, 7, 300, 640} {
		dir := t.TempDir()
		path := filepath.Join(journal(t, dir, 20), "1.blk")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()-cut); err != nil {
			t.Fatal(err)
		}
		c := connect(t, start(t, dir))
		last, err := c.ReadJournal(t.Context(), 0, func(wire.Entry) error { return nil })
		if last != 19 || err != nil {
			t.Errorf("%d bytes cut from a record of 641: the journal ends at %d, %v, want 19", cut, last, err)
		}
		if _, err := c.Append(t.Context(), 19, "step", nil); err != nil {
			t.Errorf("Append after the repair: %v", err)
		}
	}
}

// damage flips the byte in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree lists the files below a directory with their sizes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			fmt.Fprintln(&b, path, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestKill_WhatWasAcknowledgedIsThereAndTheLockIsFree(t *testing.T) {
	dir := t.TempDir()
	const acked = 200
	seen := map[string]bool{}
	for round := range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(out)
		for n := 0; n < acked && lines.Scan(); n++ {
			seen[lines.Text()] = true
		}
		_ = cmd.Process.Kill() // SIGKILL, in the middle of a publish
		for lines.Scan() {     // acknowledged before the kill, read after it
			seen[lines.Text()] = true
		}
		_ = cmd.Wait()
		watchdog.Stop()
		if len(seen) < acked*(round+1) {
			t.Fatalf("round %d: %d messages were acknowledged before the kill, want %d", round, len(seen), acked*(round+1))
		}
	}

	c := connect(t, start(t, dir))
	entries := 0
	if _, err := c.ReadJournal(t.Context(), 0, func(e wire.Entry) error {
		delete(seen, string(e.Body))
		entries++
		return nil
	}); err != nil {
		t.Fatalf("ReadJournal: %v", err)
	}
	if err := c.Publish(t.Context(), "end", "end", "end", "end", nil); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	end := errors.New("end")
	if err := c.ReadResults(t.Context(), time.Time{}, func(m wire.Message) error {
		delete(seen, string(m.Body))
		if m.Place == "end" {
			return end
		}
		return nil
	}); !errors.Is(err, end) {
		t.Fatalf("ReadResults: %v", err)
	}
	if len(seen) != 0 {
		t.Errorf("%d acknowledged messages are gone (%d journal entries are there): %v", len(seen), entries, seen)
	}
}

// publishUntilKilled publishes results and journal entries by turns and prints
// each one's body once it is acknowledged.
func publishUntilKilled(dir string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	h, err := hub.Start(context.Background(), hub.Options{Dir: dir, Log: log})
	if err != nil {
		fail(err)
	}
	c, err := wire.Connect(h.InProcess())
	if err != nil {
		fail(err)
	}
	last, err := c.ReadJournal(context.Background(), 0, func(wire.Entry) error { return nil })
	if err != nil {
		fail(err)
	}
	for {
		body := fmt.Sprintf("event %d", last+1)
		if last, err = c.Append(context.Background(), last, "step", []byte(body)); err != nil {
			fail(err)
		}
		fmt.Println(body)
		body = fmt.Sprintf("result %d", last)
		if err := c.Publish(context.Background(), "par", "p1", "http", fmt.Sprintf("%d-%d", os.Getpid(), last), []byte(body)); err != nil {
			fail(err)
		}
		fmt.Println(body)
	}
}

func TestStart_AJournalOfNoiseIsNotTakenForAPowerCut(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(journal(t, dir, 5), "1.blk")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte("\xa5\x5a\xc3"), int(info.Size())/3+1)[:info.Size()]
	if err := os.WriteFile(path, noise, 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)}); !errors.Is(err, hub.ErrCorrupt) {
		if err == nil {
			h.Stop()
		}
		t.Errorf("Start: %v, want ErrCorrupt", err)
	}
}

func TestStart_DeletingTheLockFileLetsNobodyIn(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if h, err := hub.Start(t.Context(), hub.Options{Dir: dir, Log: testLog(t)}); !errors.Is(err, hub.ErrInUse) {
		if err == nil {
			h.Stop()
		}
		t.Errorf("second Start: %v, want ErrInUse", err)
	}
}
