package balancer

// request is what the lab reads from a request head.
type request struct {
	valid bool
	head  bool // method HEAD: no body in the answer
	keep  bool // the connection may carry another request
	host  string
	// cookies are the Cookie header's, for the rule that reads them.
	cookies string
}

// parseHead reads a request head that ends in an empty line. A request with a
// body is answered and its connection closed: the lab reads no bodies.
func parseHead(head []byte) request {
	var r request
	line, rest := cutLine(head)
	method, afterMethod := cutByte(line, ' ')
	target, version := cutByte(afterMethod, ' ')
	r.valid = method != "" && target != "" && (version == "HTTP/1.1" || version == "HTTP/1.0")
	r.head = method == "HEAD"
	r.keep = r.valid && version == "HTTP/1.1"
	for {
		if line, rest = cutLine(rest); line == "" {
			return r
		}
		name, value := cutByte(line, ':')
		value = trim(value)
		switch lower(name) {
		case "cookie":
			r.cookies = value
		case "host":
			r.host, _ = cutByte(lower(value), ':')
		case "connection":
			r.keep = r.keep && lower(value) != "close"
		case "transfer-encoding":
			r.keep = false
		case "content-length":
			r.keep = r.keep && value == "0"
		}
	}
}

func cutLine(b []byte) (string, []byte) {
	for i := 0; i+1 < len(b); i++ {
		if b[i] == '\r' && b[i+1] == '\n' {
			return string(b[:i]), b[i+2:]
		}
	}
	return "", nil
}

func cutByte(s string, c byte) (before, after string) {
	for i := 0; i < len(s); i++ {
		if s[i] == c {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// cookieRule is a rule that looks at every request's cookies, and the one that
// took Cloudflare's workers down on 20 June 2024: where a malformed cookie
// follows a valid one it begins anew, and meets them again, for ever. Nothing
// in the loop calls anything, so that the scheduler never gets a word in: the
// worker takes all the CPU there is, makes no system call and does nothing else.
func cookieRule(cookies string) {
	valid, value := false, false
	for at := 0; at < len(cookies); at++ {
		switch cookies[at] {
		case '=':
			value = true
		case ';':
			if valid && !value {
				at = -1
			}
			valid, value = valid || value, false
		}
	}
}
