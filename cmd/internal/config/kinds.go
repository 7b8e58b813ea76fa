package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// One reader for each kind. A new kind brings its keys and its reader here, a
// field in Check, and a line in Check.Kind, checkKeys and Keys.

// defaultTimeout of an http look. Chosen: slower than this, and a person has
// noticed; shorter than the default interval, and than the kind's own default,
// which is for looks by hand.
const defaultTimeout = 2 * time.Second

func readHTTP(r *reader, v value, c *Check) {
	c.HTTP = &httpcheck.Config{Timeout: defaultTimeout, FollowRedirects: true}
	before := len(r.faults)
	present := readMapping(r, v, httpKeys(), c.HTTP)
	faulty := map[string]bool{} // paths that have a fault already
	for _, f := range r.faults[before:] {
		faulty[f.Path] = true
	}
	// The kind has the last word on its own configuration.
	for _, problem := range c.HTTP.Validate() {
		if at := fieldOf(v, present, problem.Field); !faulty[at.path] {
			r.fault(at, "%s", problem.Problem)
		}
	}
}

// fieldOf finds the value that the kind calls field: "url", "headers.X-Token".
func fieldOf(v value, present map[string]value, field string) value {
	name, entry, nested := strings.Cut(field, ".")
	at, ok := present[name]
	if !ok {
		return value{v.Node, join(v.path, name)}
	}
	if nested && at.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == entry {
				return value{at.Content[i], join(at.path, entry)}
			}
		}
	}
	return at
}

func httpKeys() []key[httpcheck.Config] {
	type config = httpcheck.Config
	return []key[config]{
		{"url", true, "URL", "", "What the look asks for: http or https. User info is sent as basic authentication, and shown nowhere.", into((*reader).filled, func(c *config) *string { return &c.URL })},
		{"method", false, "text", "GET", "The request's method.", into((*reader).filled, func(c *config) *string { return &c.Method })},
		{"headers", false, "mapping", "", "More request headers.", into((*reader).headers, func(c *config) *map[string]string { return &c.Headers })},
		{"host", false, "hostname", "the URL's", "The Host header, to ask one instance for a public name.", into((*reader).text, func(c *config) *string { return &c.Host })},
		{"user_agent", false, "text", "Crosscheck", "The User-Agent header.", into((*reader).filled, func(c *config) *string { return &c.UserAgent })},
		{"timeout", false, "duration", "2s", "For the whole look, redirects and body included; 10ms to 1m.", into(between(10*time.Millisecond, time.Minute), func(c *config) *time.Duration { return &c.Timeout })},
		{"status", false, "list", `["2xx"]; 200 to 399 without follow_redirects`, "The statuses that pass: codes (200), classes (2xx), ranges (200-204).", into((*reader).statuses, func(c *config) *[]httpcheck.StatusRange { return &c.Status })},
		{"body_contains", false, "text", "", "Text that must be in the body.", into((*reader).text, func(c *config) *string { return &c.BodyContains })},
		{"body_limit_bytes", false, "number", "1048576", "How much of the body is read.", into((*reader).count, func(c *config) *int64 { return &c.BodyLimitBytes })},
		{"follow_redirects", false, "boolean", "true", "Whether the look goes where a 3xx points.", into((*reader).boolean, func(c *config) *bool { return &c.FollowRedirects })},
		{"max_redirects", false, "number", "10", "How many redirects are followed at most.", func(r *reader, v value, c *config) {
			if n, ok := r.count(v); ok {
				c.MaxRedirects = int(min(n, 1<<30)) // far above what the kind allows
			}
		}},
	}
}

// statuses reads a list of status codes, classes and ranges.
func (r *reader) statuses(v value) ([]httpcheck.StatusRange, bool) {
	var ranges []httpcheck.StatusRange
	for _, item := range r.items(v, "statuses such as 200 or 2xx") {
		switch {
		case !r.plain(item):
		case item.Kind != yaml.ScalarNode:
			r.fault(item, "is %s; want a status such as 200 or 2xx", describe(item.Node))
		default:
			one, err := httpcheck.ParseStatusRange(item.Value)
			if err != nil {
				r.fault(item, "%s", err)
				continue
			}
			ranges = append(ranges, one)
		}
	}
	return ranges, len(ranges) > 0
}
