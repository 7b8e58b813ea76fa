package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader collects the faults of one scope: the file outside its services, or
// one service.
type reader struct {
	file     string
	readable func(path string) error // says why a file cannot be read
	faults   []Fault
}

// value is a node and the path by which a person finds it.
type value struct {
	*yaml.Node
	path string
}

// fault records what is wrong with v.
func (r *reader) fault(v value, format string, args ...any) {
	r.faults = append(r.faults, Fault{
		File: r.file, Line: v.Line, Column: v.Column, Path: v.path,
		Message: fmt.Sprintf(format, args...),
	})
}

// key is one key of a mapping: how it is read, and its documentation.
type key[T any] struct {
	name     string
	required bool
	// holds and fallback are for documentation: what the value is, and what it
	// is when the key is absent (empty: nothing).
	holds    string
	fallback string
	about    string
	read     func(r *reader, v value, into *T)
}

// readMapping reads v, a mapping with exactly the given keys, into into. It
// returns the values that are present.
func readMapping[T any](r *reader, v value, keys []key[T], into *T) map[string]value {
	present := map[string]value{}
	if !r.plain(v) {
		return present
	}
	if v.Kind != yaml.MappingNode {
		r.fault(v, "is %s; want a mapping with %s", describe(v.Node), keyNames(keys))
		return present
	}
	for name, child := range r.pairs(v) {
		at := slices.IndexFunc(keys, func(k key[T]) bool { return k.name == name })
		if at < 0 {
			// The fault lies at the key, not at its value.
			r.fault(value{child.keyNode, child.path}, "unknown key%s", hint(name, v.path, keyList(keys)))
			continue
		}
		present[name] = child.value
		if child.Tag == "!!null" && child.Kind == yaml.ScalarNode {
			r.fault(child.value, "has no value; give it one or remove the key")
			continue
		}
		keys[at].read(r, child.value, into)
	}
	for _, k := range keys {
		if _, ok := present[k.name]; k.required && !ok {
			r.fault(value{v.Node, join(v.path, k.name)}, "is missing")
		}
	}
	return present
}

// pair is a value with the node of its key.
type pair struct {
	value
	keyNode *yaml.Node
}

// pairs yields the entries of the mapping v in order, without those whose key
// is a fault by itself.
func (r *reader) pairs(v value) func(yield func(string, pair) bool) {
	return func(yield func(string, pair) bool) {
		lines := map[string]int{}
		for i := 0; i+1 < len(v.Content); i += 2 {
			k := v.Content[i]
			if k.Tag == "!!merge" {
				r.fault(value{k, v.path}, "merge keys (<<) are not supported; write the keys out")
				continue
			}
			if !r.plain(value{k, v.path}) {
				continue
			}
			if k.Kind != yaml.ScalarNode {
				r.fault(value{k, v.path}, "a key is %s; want text", describe(k))
				continue
			}
			path := join(v.path, k.Value)
			if line, twice := lines[k.Value]; twice {
				r.fault(value{k, path}, "is already on line %d", line)
				continue
			}
			lines[k.Value] = k.Line
			if !yield(k.Value, pair{value{v.Content[i+1], path}, k}) {
				return
			}
		}
	}
}

// items returns the entries of the sequence v; a sequence without any is a
// fault.
func (r *reader) items(v value, want string) []value {
	if !r.plain(v) {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		r.fault(v, "is %s; want a list of %s", describe(v.Node), want)
		return nil
	}
	if len(v.Content) == 0 {
		r.fault(v, "is an empty list; want at least one entry")
	}
	items := make([]value, len(v.Content))
	for i, n := range v.Content {
		items[i] = value{n, fmt.Sprintf("%s[%d]", v.path, i)}
	}
	return items
}

// plain refuses what makes one line of YAML mean another: anchors, aliases and
// tags. Without them every value stands where its fault points to.
func (r *reader) plain(v value) bool {
	switch {
	case v.Kind == yaml.AliasNode:
		r.fault(v, "aliases (*%s) are not supported; write the value out", v.Value)
	case v.Anchor != "":
		r.fault(v, "anchors (&%s) are not supported; remove it", v.Anchor)
	case v.Style&yaml.TaggedStyle != 0:
		r.fault(v, "tags (%s) are not supported; remove it", v.Tag)
	default:
		return true
	}
	return false
}

// describe names what n is, in the words of a person.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	case "!!timestamp":
		return "the date " + n.Value
	case "!!null":
		return "nothing"
	}
	return "the text " + quote(n.Value)
}

// quote shows a value in a message, shortened if it is long.
func quote(s string) string {
	const limit = 80 // chosen: a message stays on one line of a terminal
	if runes := []rune(s); len(runes) > limit {
		s = string(runes[:limit]) + "..."
	}
	return fmt.Sprintf("%q", s)
}

func join(path, name string) string {
	if !plainKey(name) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// plainKey reports whether a key can stand in a path without quotes.
func plainKey(s string) bool {
	return s != "" && len(s) <= 80 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	})
}

func keyList[T any](keys []key[T]) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}

func keyNames[T any](keys []key[T]) string { return strings.Join(keyList(keys), ", ") }
