package config

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// text reads a text on one line. A number, a boolean or a date is refused
// rather than turned into text: YAML reads 010 as 8.
func (r *reader) text(v value) (string, bool) {
	if !r.plain(v) {
		return "", false
	}
	switch {
	case v.Kind != yaml.ScalarNode:
		r.fault(v, "is %s; want text", describe(v.Node))
	case v.Tag != "!!str":
		r.fault(v, "is %s; want text: write %q", describe(v.Node), v.Value)
	case strings.ContainsFunc(v.Value, isControl):
		r.fault(v, "has a line break or control character in it")
	default:
		return v.Value, true
	}
	return "", false
}

// filled reads a text that is not empty.
func (r *reader) filled(v value) (string, bool) {
	s, ok := r.text(v)
	if ok && strings.TrimSpace(s) == "" {
		r.fault(v, "is empty; give it a value or remove the key")
		return "", false
	}
	return s, ok
}

func isControl(c rune) bool { return c < ' ' || 0x7f <= c && c <= 0x9f }

// name reads the name of a service, check, instance, place, region or network.
func (r *reader) name(v value) (string, bool) {
	s, ok := r.text(v)
	if ok && !nameForm.MatchString(s) {
		r.fault(v, "%s is not a name: want a-z, 0-9, - and _, beginning with a letter or digit, at most 63", quote(s))
		return "", false
	}
	return s, ok
}

// nameForm: names become NATS subject tokens and metric labels, so neither
// dots, spaces nor wildcards. 63 as in a DNS label (RFC 1035, 2.3.4).
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// count reads a whole number from 1 up, in decimal.
func (r *reader) count(v value) (int64, bool) {
	if !r.plain(v) {
		return 0, false
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if v.Kind != yaml.ScalarNode || v.Tag != "!!int" || err != nil || n < 1 {
		r.fault(v, "is %s; want a whole number from 1 up, in decimal", describe(v.Node))
		return 0, false
	}
	return n, true
}

// boolean reads true or false.
func (r *reader) boolean(v value) (bool, bool) {
	if !r.plain(v) {
		return false, false
	}
	if v.Kind != yaml.ScalarNode || v.Tag != "!!bool" {
		r.fault(v, "is %s; want true or false", describe(v.Node))
		return false, false
	}
	return strings.EqualFold(v.Value, "true"), true
}

// duration reads a duration with a unit, from least to most.
func (r *reader) duration(v value, least, most time.Duration) (time.Duration, bool) {
	if !r.plain(v) {
		return 0, false
	}
	if v.Kind != yaml.ScalarNode {
		r.fault(v, "is %s; want a duration such as 5s", describe(v.Node))
		return 0, false
	}
	if _, err := strconv.ParseFloat(v.Value, 64); err == nil {
		r.fault(v, "%s has no unit; write %ss", v.Value, v.Value)
		return 0, false
	}
	d, err := time.ParseDuration(v.Value)
	switch {
	case err != nil && wholeDuration.MatchString(v.Value): // beyond 292 years
		r.fault(v, "%s is too long; want at most %s", quote(v.Value), short(most))
	case err != nil:
		r.fault(v, "%s is not a duration; want a number with ms, s, m or h, such as 5s", quote(v.Value))
	case d < least:
		r.fault(v, "%s is too short; want at least %s", v.Value, short(least))
	case d > most:
		r.fault(v, "%s is too long; want at most %s", v.Value, short(most))
	default:
		return d, true
	}
	return 0, false
}

var wholeDuration = regexp.MustCompile(`^[0-9]+(ms|s|m|h)$`)

// short prints a duration without zero parts: 1h0m0s as 1h.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// address reads an IP address and a port from 1 to 65535.
func (r *reader) address(v value) (netip.AddrPort, bool) {
	host, port, ok := r.hostPort(v, 1)
	if !ok {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		r.fault(v, "%s is not an IP address, and names are not looked up here; write for example 127.0.0.1:%d", quote(host), port)
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip.Unmap(), port), true
}

// listen reads the address to serve on: an IP address or localhost, and a port;
// 0 lets the system choose one.
func (r *reader) listen(v value) (string, bool) {
	host, port, ok := r.hostPort(v, 0)
	if !ok {
		return "", false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		r.fault(v, "%s is neither an IP address nor localhost; write 0.0.0.0:%d to serve on every address", quote(host), port)
		return "", false
	}
	return v.Value, true
}

// hostPort reads ADDRESS:PORT; an IPv6 address stands in brackets.
func (r *reader) hostPort(v value, leastPort uint64) (host string, port uint16, ok bool) {
	if v.Kind == yaml.ScalarNode && digits.MatchString(v.Value) && r.plain(v) {
		r.fault(v, "%s has no address; write for example 127.0.0.1:%[1]s", v.Value)
		return "", 0, false
	}
	s, ok := r.text(v)
	if !ok {
		return "", 0, false
	}
	host, after, found := cutLast(s, ":")
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if bracketed {
		host = host[1 : len(host)-1]
	}
	number, err := strconv.ParseUint(after, 10, 64)
	switch {
	case strings.Contains(s, "/"):
		r.fault(v, "%s has a slash in it; want ADDRESS:PORT such as 127.0.0.1:8080", quote(s))
	case !found || strings.HasSuffix(s, "]"):
		r.fault(v, "%s has no port; want ADDRESS:PORT such as 127.0.0.1:8080", quote(s))
	case host == "":
		r.fault(v, "%s has no address; write for example 127.0.0.1%s", quote(s), s)
	case strings.Contains(host, ":") != bracketed:
		r.fault(v, "%s: an IPv6 address, and only that, stands in brackets: [::1]:8080", quote(s))
	case err != nil && !digits.MatchString(after):
		r.fault(v, "%s is not a port; want ADDRESS:PORT such as 127.0.0.1:8080", quote(after))
	case err != nil || number < leastPort || number > maxPort:
		r.fault(v, "%s is not a port; want %d to %d", after, leastPort, maxPort)
	default:
		return host, uint16(number), true
	}
	return "", 0, false
}

var digits = regexp.MustCompile(`^[0-9]+$`)

// maxPort: RFC 9293, 3.1: port numbers have 16 bits.
const maxPort = 65535
