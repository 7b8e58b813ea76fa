package httpcheck

import (
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "REDACTED"

// repeat returns a command line that makes the same request, for a POSIX
// shell. Secrets are redacted: whoever repeats it must put them back. dialled
// pins the first hop to the address of the look; zero pins nothing.
func (c Config) repeat(u *url.URL, dialled netip.AddrPort) string {
	args := []string{"curl", "-sS", "-v", "-g", "--http1.1", "--noproxy", "*", "-o", "/dev/null"}
	args = append(args, "--max-time", strconv.FormatFloat(c.Timeout.Seconds(), 'f', -1, 64))
	switch c.Method {
	case "GET":
	case "HEAD":
		args = append(args, "-I")
	default:
		args = append(args, "-X", c.Method)
	}
	if c.FollowRedirects {
		args = append(args, "-L", "--max-redirs", strconv.Itoa(c.MaxRedirects))
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && dialled.IsValid() {
		args = append(args, "--resolve", u.Hostname()+":"+strconv.Itoa(int(dialled.Port()))+":"+bracketed(dialled.Addr()))
	}
	if u.User != nil {
		args = append(args, "-u", redacted)
	}
	args = append(args, "-A", c.UserAgent)
	if c.Host != "" {
		args = append(args, "-H", "Host: "+c.Host)
	}
	if !c.hasHeader("Accept") {
		args = append(args, "-H", "Accept:") // curl would add one, we do not
	}
	if !c.hasHeader("Accept-Encoding") && !c.hasHeader("Range") && c.Method != "HEAD" {
		args = append(args, "--compressed") // as net/http asks for gzip
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value := c.Headers[name]
		switch {
		case isSecretHeader(name):
			args = append(args, "-H", name+": "+redacted)
		case value == "":
			args = append(args, "-H", name+";") // curl: "Name:" would remove it
		default:
			args = append(args, "-H", name+": "+value)
		}
	}
	args = append(args, redactURL(u))
	for i, a := range args {
		args[i] = quote(a)
	}
	return strings.Join(args, " ")
}

func (c Config) hasHeader(name string) bool {
	for k := range c.Headers {
		if textproto.CanonicalMIMEHeaderKey(k) == name {
			return true
		}
	}
	return false
}

func bracketed(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// redactURL returns u without its user info and with the values of query keys
// that look like secrets replaced. The rest of the query stays byte for byte:
// a load balancer may well fall over the bytes.
func redactURL(u *url.URL) string {
	shown := *u
	shown.User = nil
	shown.Fragment, shown.RawFragment = "", ""
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		key, _, hasValue := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key
		}
		if hasValue && isSecretName(name) {
			pairs[i] = key + "=" + redacted
		}
	}
	shown.RawQuery = strings.Join(pairs, "&")
	return shown.String()
}

// secretWords mark a name as that of a secret wherever they occur in it. They
// hit too much ("monkey") rather than too little.
var secretWords = []string{"token", "secret", "passw", "pwd", "auth", "key", "sig", "session", "sid", "cred", "jwt", "cookie", "otp"}

// secretNames do so only as the whole name.
var secretNames = []string{"code", "pass", "pin", "hash", "hmac", "user"}

func isSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(secretNames, name) ||
		slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) })
}

// isSecretHeader covers Authorization, Proxy-Authorization, Cookie and whatever
// is named like a secret, such as X-Api-Key.
func isSecretHeader(name string) bool { return isSecretName(name) }

// quote returns text as one word of a POSIX shell (POSIX.1-2024, Shell Command
// Language, 2.2.2): bare if nothing in it is special, else in single quotes.
func quote(text string) string {
	special := func(c rune) bool {
		return !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.ContainsRune("-_./:@%+,", c))
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
