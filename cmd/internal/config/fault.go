package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Fault is one thing that is wrong with a file, and where.
type Fault struct {
	File string
	// Line and Column count from 1; zero if the fault has no place in the
	// file.
	Line, Column int
	// Path is the key, such as services[2].checks[0].http.url; empty if the
	// fault concerns the whole file.
	Path string
	// Message says what is wrong and, where that is known, what to write.
	Message string
}

// String returns "crosscheck.yml:12: services[2].checks[0].http.url: ...".
func (f Fault) String() string {
	s := f.File
	if f.Line > 0 {
		s = fmt.Sprintf("%s:%d", s, f.Line)
	}
	if f.Path != "" {
		s += ": " + f.Path
	}
	return s + ": " + f.Message
}

// Refusal is a service that is left out, with at least one fault.
type Refusal struct {
	// Service is the name as written, or its path (services[2]) if it has none.
	Service string
	Faults  []Fault
}

// sortFaults orders faults as a reader of the file meets them.
func sortFaults(faults []Fault) {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// unwrapPath drops the path from an error of the os package: a Fault names the
// file itself.
func unwrapPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
