package config

import (
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// webURL reads an http or https URL that is ours to call or to print. What is
// wrong with a URL is the http kind's to say, so that the house has one rule.
// One with user info is refused and never shown: it would end in logs and
// pages.
func (r *reader) webURL(v value) (string, bool) {
	s, ok := r.filled(v)
	if !ok {
		return "", false
	}
	problems := httpcheck.Config{URL: s}.Validate()
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@") && (err != nil || u.User != nil || u.Host == ""):
		r.fault(v, "has a user name or password in it, which would end in logs and pages")
	case len(problems) > 0 && !strings.Contains(s, ":/"):
		r.fault(v, "%s has no scheme; write %s", quote(s), quote("http://"+s))
	case len(problems) > 0:
		r.fault(v, "%s", problems[0].Problem)
	default:
		return s, true
	}
	return "", false
}

// headers reads a mapping of header names to values. Which of them may be set
// is the kind's to say.
func (r *reader) headers(v value) (map[string]string, bool) {
	if !r.plain(v) {
		return nil, false
	}
	if v.Kind != yaml.MappingNode {
		r.fault(v, "is %s; want a mapping of header names to values", describe(v.Node))
		return nil, false
	}
	headers, lines := map[string]string{}, map[string]int{}
	for name, child := range r.pairs(v) {
		folded := strings.ToLower(name)
		if line, twice := lines[folded]; twice {
			r.fault(value{child.keyNode, child.path}, "is already on line %d: header names are the same in upper and lower case", line)
			continue
		}
		lines[folded] = child.keyNode.Line
		if s, ok := r.text(child.value); ok {
			headers[name] = s
		}
	}
	return headers, true // what is good of them is the kind's to check
}
