package httpcheck

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is one http check as it stands in a file. The zero value of every
// field but URL is a default.
type Config struct {
	// URL is what is asked for: http or https. User info in it is sent as basic
	// authentication and shown nowhere.
	URL string
	// Method is GET if empty.
	Method string
	// Headers are added to the request. A name among them that Config has a
	// field for (Host, User-Agent) is refused.
	Headers map[string]string
	// Host replaces the URL's host in the Host header; it may carry a port. TLS
	// still asks for the URL's name. Empty means the URL's.
	Host string
	// Timeout limits the whole look, redirects and body included. Zero means
	// DefaultTimeout.
	Timeout time.Duration
	// Status are the statuses that pass. Empty means 200 to 399; with
	// FollowRedirects 200 to 299, because what was followed must end somewhere.
	Status []StatusRange
	// BodyContains must occur in the body's first BodyLimitBytes bytes, after
	// decompression. Empty expects nothing.
	BodyContains string
	// BodyLimitBytes is how much of the body is read; zero means
	// DefaultBodyLimitBytes. A longer body is no fault: it is left unread.
	BodyLimitBytes int64
	// FollowRedirects follows up to MaxRedirects of them (zero means
	// DefaultMaxRedirects), each on a connection of its own, and judges the last
	// answer. Without it the first answer is judged, redirect or not.
	FollowRedirects bool
	MaxRedirects    int
	// UserAgent is DefaultUserAgent if empty.
	UserAgent string
}

// Defaults of Config.
const (
	DefaultTimeout        = 5 * time.Second // chosen: a customer has left by then
	DefaultBodyLimitBytes = 1 << 20         // chosen: 1 MiB holds any page that is worth a look
	DefaultMaxRedirects   = 10              // as net/http and curl's advice
	DefaultUserAgent      = "Crosscheck"
)

// maxBodyLimitBytes bounds what one look may hold in memory. Chosen.
const maxBodyLimitBytes = 64 << 20

// FieldError is one fault of a Config. Field is the key as it stands in a
// file, such as "url" or "headers.X-Token".
type FieldError struct {
	Field   string
	Problem string // a sentence without a full stop
}

// Error returns "field: problem".
func (e FieldError) Error() string { return e.Field + ": " + e.Problem }

// Validate returns every fault of c, in the order of its fields; none if it
// can be looked at. It repairs nothing.
func (c Config) Validate() []FieldError {
	var faults []FieldError
	add := func(field, format string, args ...any) {
		faults = append(faults, FieldError{field, fmt.Sprintf(format, args...)})
	}
	if problem := urlProblem(c.URL); problem != "" {
		add("url", "%s", problem)
	}
	if c.Method != "" && !isMethod(c.Method) {
		add("method", "%q is not a method in capitals, such as GET or HEAD", c.Method)
	}
	if c.Method == "HEAD" && c.BodyContains != "" {
		add("body_contains", "an answer to HEAD has no body; use GET")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if problem := headerProblem(name, c.Headers[name]); problem != "" {
			add("headers."+name, "%s", problem)
		} else if seen[canonical] {
			add("headers."+name, "it stands here twice, in different capitals")
		}
		seen[canonical] = true
	}
	if c.Host != "" {
		if problem := hostPortProblem(c.Host); problem != "" {
			add("host", "%s", problem)
		}
	}
	if c.Timeout < 0 {
		add("timeout", "%s is negative", c.Timeout)
	}
	for i, r := range c.Status {
		if r.From < 100 || r.To > 599 || r.From > r.To {
			add(fmt.Sprintf("status[%d]", i), "%s is not a range within 100 to 599", r)
		}
	}
	if c.BodyLimitBytes < 0 || c.BodyLimitBytes > maxBodyLimitBytes {
		add("body_limit_bytes", "%d is not within 1 to %d", c.BodyLimitBytes, maxBodyLimitBytes)
	}
	if c.MaxRedirects < 0 || c.MaxRedirects > 100 {
		add("max_redirects", "%d is not within 1 to 100", c.MaxRedirects)
	} else if c.MaxRedirects > 0 && !c.FollowRedirects {
		add("max_redirects", "it does nothing without follow_redirects")
	}
	if !isHeaderValue(c.UserAgent) {
		add("user_agent", "it holds a control character")
	}
	return faults
}

// withDefaults fills the zero values in. c must be valid.
func (c Config) withDefaults() Config {
	if c.Method == "" {
		c.Method = "GET"
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.BodyLimitBytes == 0 {
		c.BodyLimitBytes = DefaultBodyLimitBytes
	}
	if c.FollowRedirects && c.MaxRedirects == 0 {
		c.MaxRedirects = DefaultMaxRedirects
	}
	if len(c.Status) == 0 {
		c.Status = []StatusRange{{200, 399}}
		if c.FollowRedirects {
			c.Status = []StatusRange{{200, 299}}
		}
	}
	if c.UserAgent == "" {
		c.UserAgent = DefaultUserAgent
	}
	return c
}

// StatusRange is a range of statuses, both ends included.
type StatusRange struct{ From, To int }

// ParseStatusRange reads "200", "2xx" or "200-299".
func ParseStatusRange(text string) (StatusRange, error) {
	from, to, isRange := strings.Cut(text, "-")
	r := StatusRange{}
	if len(text) == 3 && text[1:] == "xx" && text[0] >= '1' && text[0] <= '5' {
		r.From = int(text[0]-'0') * 100
		r.To = r.From + 99
		return r, nil
	}
	if !isRange {
		to = from
	}
	var ok, okTo bool
	r.From, ok = parseStatus(from)
	r.To, okTo = parseStatus(to)
	if !ok || !okTo || r.From > r.To {
		return StatusRange{}, fmt.Errorf("status %q is none of 200, 2xx or 200-299, within 100 to 599", text)
	}
	return r, nil
}

func parseStatus(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && len(text) == 3 && n >= 100 && n <= 599
}

// String returns the range as ParseStatusRange reads it.
func (r StatusRange) String() string {
	switch {
	case r.From == r.To:
		return strconv.Itoa(r.From)
	case r.From >= 100 && r.From%100 == 0 && r.To == r.From+99 && r.From < 600:
		return strconv.Itoa(r.From/100) + "xx"
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

func (r StatusRange) contains(status int) bool { return r.From <= status && status <= r.To }

// urlProblem says what is wrong with a URL, without repeating what may be a
// secret in it.
func urlProblem(text string) string {
	if text == "" {
		return "it is missing"
	}
	u, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) { // its own text repeats the whole URL
			err = e.Err
		}
		if !strings.Contains(text, "://") {
			return "it has no scheme: it must begin with http:// or https://"
		}
		return fmt.Sprintf("it is not a URL: %v", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return "it must begin with http:// or https://"
	}
	if u.Opaque != "" || u.Host == "" {
		return "it names no host"
	}
	if u.Fragment != "" {
		return "a fragment (#...) is never sent; leave it out"
	}
	return hostPortProblem(u.Host)
}

// isMethod reports whether text is a method we send: a token (RFC 9110 section
// 9.1) in capitals. CONNECT asks for a tunnel, which is not this kind's.
func isMethod(text string) bool {
	for _, c := range text {
		if (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return text != "CONNECT"
}

// owned are headers that Config has a field for, or that net/http writes by
// itself: a value among Headers would be ignored.
var owned = map[string]string{
	"Host":              "use host",
	"User-Agent":        "use user_agent",
	"Content-Length":    "a look has no body",
	"Transfer-Encoding": "a look has no body",
	"Trailer":           "a look has no body",
	"Connection":        "every look has a connection of its own, and closes it",
}

func headerProblem(name, value string) string {
	switch {
	case !isToken(name):
		return fmt.Sprintf("%q is not a header name", name)
	case !isHeaderValue(value):
		return "its value holds a control character"
	case value != strings.Trim(value, " \t"):
		return "its value begins or ends with a space"
	}
	if instead := owned[textproto.CanonicalMIMEHeaderKey(name)]; instead != "" {
		return "it cannot be set here: " + instead
	}
	return ""
}

// isToken follows RFC 9110 section 5.6.2.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return text != ""
}

// isHeaderValue follows RFC 9110 section 5.5.
func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}
