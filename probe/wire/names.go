package wire

import (
	"fmt"
	"strings"
)

// maxNameBytes bounds a subject token. Chosen: RFC 1035 section 2.3.4 allows 63
// to a DNS label, and names here are often host names.
const maxNameBytes = 63

// CheckName reports with ErrName whether name can be a place, vantage or kind:
// 1 to 63 ASCII letters, digits, "-" and "_". Dots separate tokens in a subject
// and stars are wildcards, so neither can be part of one.
func CheckName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("%w: %q: want 1 to %d characters", ErrName, name, maxNameBytes)
	}
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		default:
			return fmt.Errorf("%w: %q: %q is not a letter, a digit, - or _", ErrName, name, r)
		}
	}
	return nil
}

// subject joins a fixed head with checked names.
func subject(head string, names ...string) (string, error) {
	for _, n := range names {
		if err := CheckName(n); err != nil {
			return "", err
		}
	}
	return head + "." + strings.Join(names, "."), nil
}
