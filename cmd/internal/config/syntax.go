package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML returns the root node of the only document in data, or why there
// is none.
func parseYAML(name string, data []byte) (*yaml.Node, []Fault) {
	refuse := func(line int, format string, args ...any) (*yaml.Node, []Fault) {
		return nil, []Fault{{File: name, Line: line, Message: fmt.Sprintf(format, args...)}}
	}
	if len(data) > MaxBytes {
		return refuse(0, "is larger than %d MiB", MaxBytes>>20)
	}
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return refuse(lineOf(data, at), "contains a NUL byte; want UTF-8 text")
	}
	if at := invalidUTF8(data); at >= 0 {
		return refuse(lineOf(data, at), "is not UTF-8 text")
	}
	if at := oddLineBreak(data); at >= 0 {
		return refuse(lineOf(data, at), "has a line break that is neither LF nor CR LF, so that no two programs agree on its lines")
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := documents.Decode(&document)
	if errors.Is(err, io.EOF) {
		return refuse(0, "is empty")
	}
	if err == nil {
		err = documents.Decode(&second)
	}
	switch {
	case err == nil:
		return refuse(second.Line, "a second YAML document begins here; want one")
	case !errors.Is(err, io.EOF):
		return refuse(syntaxErrorLine(data), "not YAML: %s", yamlMessage(err))
	case len(document.Content) == 0 || document.Content[0].Tag == "!!null":
		return refuse(0, "is empty")
	}
	return document.Content[0], nil
}

// yamlMessage strips the parser's name and its line, which is often missing or
// off by one or more (go.yaml.in/yaml/v3 v3.0.6, parser.fail).
func yamlMessage(err error) string {
	return yamlPrefix.ReplaceAllString(strings.ReplaceAll(err.Error(), "\n", " "), "")
}

var yamlPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxErrorLine finds the line that makes data no longer YAML: the one after
// the longest run of whole lines that still parses. An open quote or bracket is
// therefore reported where it was opened.
func syntaxErrorLine(data []byte) int {
	starts := []int{0} // of lines
	for at, c := range data {
		if c == '\n' && at+1 < len(data) {
			starts = append(starts, at+1)
		}
	}
	// The parser reads a little ahead and never back, so the line is at most
	// the last one it was fed.
	feed := lineFeed{rest: data}
	isYAML(&feed)
	last, _ := slices.BinarySearch(starts, len(data)-len(feed.rest))
	last--

	budget := syntaxErrorBudget
	for line := last; line >= 0 && budget > 0; line-- {
		if isYAML(bytes.NewReader(data[:starts[line]])) {
			return line + 1
		}
		budget -= starts[line]
	}
	// A large file with its fault far from its end. Halving finds it too,
	// unless a healthy construct of several lines is cut in two on the way.
	return 1 + sort.Search(last, func(line int) bool {
		return !isYAML(bytes.NewReader(data[:starts[line+1]]))
	})
}

// syntaxErrorBudget is how many bytes are parsed in search of the line. Chosen:
// a tenth of a second, and every line of a file of 5 KB. Only an open quote
// needs more than a few lines.
const syntaxErrorBudget = 1 << 20

func isYAML(r io.Reader) bool {
	documents := yaml.NewDecoder(r)
	for {
		var n yaml.Node
		if err := documents.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// lineFeed is a reader that hands out at most one line at a time.
type lineFeed struct{ rest []byte }

func (f *lineFeed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	line := f.rest
	if at := bytes.IndexByte(line, '\n'); at >= 0 {
		line = line[:at+1]
	}
	n := copy(p, line)
	f.rest = f.rest[n:]
	return n, nil
}

func lineOf(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// oddLineBreak returns the offset of the first line break that YAML 1.1 knows
// and editors do not (5.4: CR alone, NEL, LS, PS), or -1. Lines would be
// counted differently from what a person sees.
func oddLineBreak(data []byte) int {
	for _, odd := range []string{"\u0085", "\u2028", "\u2029"} {
		if at := bytes.Index(data, []byte(odd)); at >= 0 {
			return at
		}
	}
	for at, c := range data {
		if c == '\r' && (at+1 == len(data) || data[at+1] != '\n') {
			return at
		}
	}
	return -1
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
	return -1
}
