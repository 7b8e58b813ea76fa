package httpcheck

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// hostPortProblem says what is wrong with HOST or HOST:PORT; "" if nothing is.
func hostPortProblem(text string) string {
	if i := strings.IndexAny(text, `/\`); i >= 0 {
		return notBare(text, rune(text[i]))
	}
	host, port, hasPort := text, "", false
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port, hasPort = text[:i], text[i+1:], true
	}
	if problem := hostProblem(host); problem != "" {
		return problem
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 32)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Sprintf("port %q is not within 1 to 65535", port)
		}
	}
	return ""
}

// hostProblem says why text is not a bare host: a name, an IPv4 address, or an
// IPv6 address in brackets. It never repairs one.
func hostProblem(text string) string {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		inside, closed := strings.CutSuffix(inside, "]")
		if addr, err := netip.ParseAddr(inside); !closed || err != nil || !addr.Is6() {
			return fmt.Sprintf("%q is not an IPv6 address in brackets", text)
		}
		return ""
	}
	for _, c := range text {
		if !isHostByte(c) {
			return notBare(text, c)
		}
	}
	name := strings.TrimSuffix(text, ".") // the root's own dot
	if name == "" || len(name) > 253 {    // RFC 1035 section 2.3.4
		return fmt.Sprintf("%q is not a host name: it has %d characters, want 1 to 253", text, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Sprintf("%q is not a host name: %q between its dots", text, label)
		}
	}
	if isNumeric(name) {
		if _, err := netip.ParseAddr(name); err != nil {
			return fmt.Sprintf("%q is neither a host name nor an IPv4 address", text)
		}
	}
	return ""
}

// isHostByte allows what host names are made of (RFC 1123 section 2.1) and the
// underscore, which internal names have.
func isHostByte(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.' || c == '_'
}

// isNumeric reports whether the last label is a number: then the whole must be
// an address (WHATWG URL, "ends in a number").
func isNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := strconv.ParseUint(last, 10, 64)
	return err == nil
}

// patterns are the characters that a load balancer may read as the beginning
// of a pattern rather than as part of a name.
const patterns = `/\*?+^$()[]{}|`

// notBare names the danger: the value that ended the routing of a whole
// platform on 2026-08-27 was "example.com/".
func notBare(text string, c rune) string {
	switch {
	case strings.ContainsRune(patterns, c):
		return fmt.Sprintf("%q is not a bare host name: %q in it can be read as the start of a pattern or a path; "+
			"a hostname like this, pushed to every load balancer, crash-looped all their workers at once. Write the name alone, such as example.com", text, c)
	case c == ' ' || c == '\t':
		return fmt.Sprintf("%q is not a bare host name: it holds a space", text)
	case c == ':':
		return fmt.Sprintf("%q is not a bare host name: put an IPv6 address in brackets", text)
	case c > 0x7f:
		return fmt.Sprintf("%q is not a bare host name: write %q in its ASCII form (xn--...)", text, c)
	}
	return fmt.Sprintf("%q is not a bare host name: %q does not belong in one", text, c)
}
