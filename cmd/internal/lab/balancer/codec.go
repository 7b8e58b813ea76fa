package balancer

import "errors"

// field is one member of a message: a flat JSON object whose values are
// strings. The hand-written codec is here because encoding/json would bring
// reflect and unicode, and with them 8 ms of other packages' initialisation
// per worker (README, "Start-up"). A fuzz test holds it against encoding/json.
type field struct{ name, value string }

// message is what main tells a worker, and a worker main.
type message []field

// get returns the value of the named member, or "".
func (m message) get(name string) string {
	for _, f := range m {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// appendMessage appends m as one line of JSON.
func appendMessage(b []byte, m message) []byte {
	b = append(b, '{')
	for i, f := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, f.name)
		b = append(b, ':')
		b = appendString(b, f.value)
	}
	return append(b, '}', '\n')
}

// appendString appends s as a JSON string (RFC 8259 section 7). Bytes from
// 0x80 on are passed on as they are.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

var errMessage = errors.New("parse message: not a flat JSON object of strings as we write it")

// parseMessage reads what appendMessage wrote, without the newline. It reads
// nothing else: only our own two processes speak here.
func parseMessage(line string) (message, error) {
	p := parser{rest: line}
	if !p.take('{') {
		return nil, errMessage
	}
	var m message
	for !p.take('}') {
		if len(m) > 0 && !p.take(',') {
			return nil, errMessage
		}
		name, ok := p.text()
		if !ok || !p.take(':') {
			return nil, errMessage
		}
		value, ok := p.text()
		if !ok {
			return nil, errMessage
		}
		m = append(m, field{name, value})
	}
	if p.rest != "" {
		return nil, errMessage
	}
	return m, nil
}

type parser struct{ rest string }

// take consumes c if it comes next.
func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text consumes a string as appendString writes it.
func (p *parser) text() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	var out []byte
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return string(out), true
		case c < 0x20:
			return "", false
		case c == '\\':
			if c = p.escape(); c == 0 {
				return "", false
			}
			if c == nul {
				c = 0
			}
		}
		out = append(out, c)
	}
	return "", false
}

// nul stands for an escaped zero byte, so that 0 can say "no escape of ours".
// No escape of ours yields 0xff.
const nul = 0xff

// escape consumes what follows a backslash: a quote, a backslash, or u00XX
// with XX below 0x20.
func (p *parser) escape() byte {
	if p.take('"') {
		return '"'
	}
	if p.take('\\') {
		return '\\'
	}
	if len(p.rest) < 5 || p.rest[:3] != "u00" {
		return 0
	}
	high, low := p.rest[3], p.rest[4]
	p.rest = p.rest[5:]
	if high != '0' && high != '1' {
		return 0
	}
	c := (high - '0') << 4
	switch {
	case '0' <= low && low <= '9':
		c |= low - '0'
	case 'a' <= low && low <= 'f':
		c |= low - 'a' + 10
	default:
		return 0
	}
	if c == 0 {
		return nul
	}
	return c
}

// lines cuts a stream of bytes into lines.
type lines struct{ partial []byte }

// feed takes the next bytes and calls each with every complete line.
func (l *lines) feed(b []byte, each func(string)) {
	for _, c := range b {
		if c == '\n' {
			each(string(l.partial))
			l.partial = l.partial[:0]
			continue
		}
		l.partial = append(l.partial, c)
	}
}
