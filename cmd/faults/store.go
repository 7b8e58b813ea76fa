//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// store remembers results, in a file of one result a line if it has one.
type store struct {
	file    *os.File // nil without one
	results map[cellID]result
}

// openStore reads what is in the file. A last line that was cut off is ignored,
// and a cell that could not be run is run again.
func openStore(path string) (*store, error) {
	s := &store{results: map[cellID]result{}}
	if path == "" {
		return s, nil
	}
	if err := s.read(path); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	s.file = file
	// A line that was cut off must not swallow the next one; an empty line is none.
	if _, err := file.WriteString("\n"); err != nil {
		file.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return s, nil
}

func (s *store) read(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 8<<20) // facts are long
	for lines.Scan() {
		var r result
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Cell.Server == "" {
			continue
		}
		s.results[r.Cell] = r
		if r.Error != "" || r.Missing != "" {
			delete(s.results, r.Cell)
		}
	}
	return lines.Err()
}

// missing lists the cells that have no result.
func (s *store) missing(cells []cellID) []cellID {
	return slices.DeleteFunc(slices.Clone(cells), func(id cellID) bool { _, ok := s.results[id]; return ok })
}

// add remembers a result.
func (s *store) add(r result) error {
	s.results[r.Cell] = r
	if s.file == nil {
		return nil
	}
	raw, err := json.Marshal(r)
	if err == nil {
		_, err = s.file.Write(append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("store a result: %w", err)
	}
	return nil
}

// of lists the results of cells, in their order.
func (s *store) of(cells []cellID) []result {
	var all []result
	for _, id := range cells {
		if r, ok := s.results[id]; ok {
			all = append(all, r)
		}
	}
	return all
}

func (s *store) close() {
	if s.file != nil {
		_ = s.file.Close() // each line was written on its own
	}
}
