//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func id(server, fault string, round int) cellID { return cellID{server, fault, round} }

func TestStore_AFinishedCellIsNotRunAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	cells := []cellID{id("nginx", "idle", 1), id("nginx", "idle", 2), id("lab", "shut", 1), id("lab", "close", 1), id("uwsgi", "idle", 1)}
	s, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []result{
		{Cell: cells[0], OK: true},
		{Cell: cells[2], Problems: []string{"wrong, and so it stays"}},
		{Cell: cells[3], Error: "could not be run"},
		{Cell: cells[4], Missing: "not installed"},
	} {
		if err := s.add(r); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
	// Killed while it wrote.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"cell":{"server":"nginx","fau`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	again, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	want := []cellID{cells[1], cells[3], cells[4]}
	if diff := cmp.Diff(want, again.missing(cells)); diff != "" {
		t.Errorf("missing cells (-want +got):\n%s", diff)
	}
	// What is added now must not hide behind the torn line.
	if err := again.add(result{Cell: cells[1], OK: true}); err != nil {
		t.Fatal(err)
	}
	third, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	defer third.close()
	if diff := cmp.Diff([]cellID{cells[3], cells[4]}, third.missing(cells)); diff != "" {
		t.Errorf("missing cells after one more (-want +got):\n%s", diff)
	}
	if got := len(third.of(cells)); got != 3 {
		t.Errorf("%d results, want 3", got)
	}
}

func TestStore_WithoutAFileRemembersForTheRun(t *testing.T) {
	s, err := openStore("")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	cells := []cellID{id("nginx", "idle", 1), id("lab", "idle", 1)}
	if err := s.add(result{Cell: cells[0], OK: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cells[1:], s.missing(cells)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
