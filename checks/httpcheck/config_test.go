//go:build linux

package httpcheck_test

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

func TestValidate_NamesTheFieldAndTheFault(t *testing.T) {
	good := httpcheck.Config{URL: "http://example.com/"}
	with := func(change func(*httpcheck.Config)) httpcheck.Config {
		c := good
		change(&c)
		return c
	}
	type config = httpcheck.Config
	for name, row := range map[string]struct {
		config       httpcheck.Config
		field, wants string // none: it is valid
	}{
		"a plain URL is good":             {good, "", ""},
		"every field set is good":         {with(func(c *config) { *c = full }), "", ""},
		"user info is good":               {config{URL: "https://me:secret@example.com"}, "", ""},
		"an IPv6 address is good":         {config{URL: "http://[::1]:8080/"}, "", ""},
		"a host with a port is good":      {with(func(c *config) { c.Host = "example.com:8080" }), "", ""},
		"a name with the root dot":        {with(func(c *config) { c.Host = "example.com." }), "", ""},
		"no URL":                          {config{}, "url", "missing"},
		"no scheme":                       {config{URL: "example.com/"}, "url", "http://"},
		"another scheme":                  {config{URL: "ftp://example.com"}, "url", "http://"},
		"a file":                          {config{URL: "file:///etc/passwd"}, "url", "http://"},
		"no host":                         {config{URL: "http:///x"}, "url", "no host"},
		"an opaque URL":                   {config{URL: "http:example.com"}, "url", "no host"},
		"a fragment":                      {config{URL: "http://example.com/#top"}, "url", "fragment"},
		"port 70000":                      {config{URL: "http://example.com:70000"}, "url", `port "70000" is not within`},
		"port 0":                          {config{URL: "http://example.com:0"}, "url", "not within"},
		"an empty port":                   {config{URL: "http://example.com:/"}, "url", "not within"},
		"a port in words":                 {config{URL: "http://example.com:http"}, "url", "not a URL"},
		"a star in the URL's host":        {config{URL: "http://*.example.com/"}, "url", "not a bare host name"},
		"a host with a trailing slash":    {with(func(c *config) { c.Host = "example.com/" }), "host", "crash-looped"},
		"a host with a path":              {with(func(c *config) { c.Host = "example.com/shop" }), "host", "crash-looped"},
		"a host that is a URL":            {with(func(c *config) { c.Host = "http://example.com" }), "host", "crash-looped"},
		"a host with a backslash":         {with(func(c *config) { c.Host = `example.com\` }), "host", "crash-looped"},
		"a host that is a pattern":        {with(func(c *config) { c.Host = "(www|app).example.com" }), "host", "crash-looped"},
		"a host with a star":              {with(func(c *config) { c.Host = "*.example.com" }), "host", "crash-looped"},
		"a host with a space":             {with(func(c *config) { c.Host = "example .com" }), "host", "space"},
		"a host with a line break":        {with(func(c *config) { c.Host = "example.com\r\nX: y" }), "host", "does not belong"},
		"a host with an umlaut":           {with(func(c *config) { c.Host = "bücher.example" }), "host", "xn--"},
		"a host with two dots":            {with(func(c *config) { c.Host = "example..com" }), "host", "between its dots"},
		"a host with a leading hyphen":    {with(func(c *config) { c.Host = "-example.com" }), "host", "between its dots"},
		"a host that is only a dot":       {with(func(c *config) { c.Host = "." }), "host", "0 characters"},
		"a host with port 70000":          {with(func(c *config) { c.Host = "example.com:70000" }), "host", "70000"},
		"a host that is half an address":  {with(func(c *config) { c.Host = "127.1" }), "host", "neither"},
		"an IPv6 host without brackets":   {with(func(c *config) { c.Host = "::1" }), "host", "brackets"},
		"an open bracket":                 {with(func(c *config) { c.Host = "[::1" }), "host", "brackets"},
		"a method in small letters":       {with(func(c *config) { c.Method = "get" }), "method", "capitals"},
		"a method that asks for a tunnel": {with(func(c *config) { c.Method = "CONNECT" }), "method", "not a method"},
		"a body after HEAD":               {with(func(c *config) { c.Method, c.BodyContains = "HEAD", "x" }), "body_contains", "no body"},
		"a header name with a space":      {with(func(c *config) { c.Headers = map[string]string{"X Y": ""} }), "headers.X Y", "not a header name"},
		"a header value with line breaks": {with(func(c *config) { c.Headers = map[string]string{"X": "a\r\nY: b"} }), "headers.X", "control"},
		"a header that has its own field": {with(func(c *config) { c.Headers = map[string]string{"host": "a"} }), "headers.host", "use host"},
		"a header twice":                  {with(func(c *config) { c.Headers = map[string]string{"X-A": "1", "x-a": "2"} }), "headers.x-a", "twice"},
		"a negative timeout":              {with(func(c *config) { c.Timeout = -time.Second }), "timeout", "negative"},
		"a status of 42":                  {with(func(c *config) { c.Status = []httpcheck.StatusRange{{200, 299}, {42, 42}} }), "status[1]", "range"},
		"a negative body limit":           {with(func(c *config) { c.BodyLimitBytes = -1 }), "body_limit_bytes", "within"},
		"redirects that nobody follows":   {with(func(c *config) { c.MaxRedirects = 3 }), "max_redirects", "does nothing"},
		"too many redirects":              {with(func(c *config) { c.FollowRedirects, c.MaxRedirects = true, 101 }), "max_redirects", "within"},
		"a user agent with a line break":  {with(func(c *config) { c.UserAgent = "a\nb" }), "user_agent", "control"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := row.config.Validate()
			_, err := httpcheck.New(row.config)
			if row.field == "" {
				if len(faults) > 0 || err != nil {
					t.Errorf("Validate() = %v, New() = %v, want no fault", faults, err)
				}
				return
			}
			if err == nil || len(faults) != 1 || faults[0].Field != row.field || !strings.Contains(faults[0].Problem, row.wants) {
				t.Errorf("Validate() = %v, want one fault of %s with %q", faults, row.field, row.wants)
			}
			if len(faults) > 0 && (strings.Contains(faults[0].Problem, "\n") || strings.HasSuffix(faults[0].Problem, ".")) {
				t.Errorf("problem %q is not one sentence without a full stop", faults[0].Problem)
			}
		})
	}
}

// full has every field set.
var full = httpcheck.Config{
	URL: "https://example.com:8443/a?b=c", Method: "POST", Headers: map[string]string{"X-Shape": "odd"}, Host: "app.example.com",
	Timeout: time.Second, Status: []httpcheck.StatusRange{{200, 204}}, BodyContains: "ok", BodyLimitBytes: 10,
	FollowRedirects: true, MaxRedirects: 1, UserAgent: "me",
}

func TestValidate_ReportsEveryFaultAtOnce(t *testing.T) {
	faults := httpcheck.Config{URL: "x", Host: "example.com/", Timeout: -1, Method: "get"}.Validate()
	var fields []string
	for _, f := range faults {
		fields = append(fields, f.Field)
	}
	if diff := cmp.Diff([]string{"url", "method", "host", "timeout"}, fields); diff != "" {
		t.Errorf("faulty fields (-want +got):\n%s", diff)
	}
}

func TestValidate_NeverRepeatsAPassword(t *testing.T) {
	for _, u := range []string{"ftp://me:hunter2@h/", "http://me:hunter2@ex ample/", "http://me:hunter2@h:70000/", "http://me:hunter2@/", "http://me:hunter2@h/%zz"} {
		for _, f := range (httpcheck.Config{URL: u}).Validate() {
			if strings.Contains(f.Error(), "hunter2") {
				t.Errorf("Validate of %q says %q", u, f)
			}
		}
	}
}

func TestParseStatusRange(t *testing.T) {
	for text, want := range map[string]httpcheck.StatusRange{
		"200": {200, 200}, "2xx": {200, 299}, "200-399": {200, 399}, "500-500": {500, 500},
	} {
		if got, err := httpcheck.ParseStatusRange(text); got != want || err != nil {
			t.Errorf("ParseStatusRange(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "20", "6xx", "0xx", "2XX", "2x", "600", "99", "300-200", "200-", "-200", "200-300-400", "+20", " 200", "2e2"} {
		if got, err := httpcheck.ParseStatusRange(text); err == nil {
			t.Errorf("ParseStatusRange(%q) = %v, want an error", text, got)
		}
	}
}

func FuzzParseStatusRange_ComesBack(f *testing.F) {
	for _, seed := range []string{"200", "2xx", "200-399", "x", "-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := httpcheck.ParseStatusRange(text)
		if err != nil {
			return
		}
		if again, err := httpcheck.ParseStatusRange(r.String()); err != nil || again != r {
			t.Errorf("%q is %v, which reads back as %v, %v", text, r, again, err)
		}
		if faults := (httpcheck.Config{URL: "http://a", Status: []httpcheck.StatusRange{r}}).Validate(); len(faults) > 0 {
			t.Errorf("%q parses and is refused: %v", text, faults)
		}
	})
}

func FuzzValidate_AnAcceptedHostIsBare(f *testing.F) {
	f.Add("http://example.com/", "example.com/")
	f.Add("https://u:p@[::1]:443/?token=x", "a.b:80")
	f.Add("http://a:70000", `a\b`)
	f.Fuzz(func(t *testing.T, text, host string) {
		c := httpcheck.Config{URL: text, Host: host}
		if len(c.Validate()) > 0 {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			t.Fatalf("%q is accepted and is no URL: %v", text, err)
		}
		if strings.ContainsAny(host, "/\\ *?()|^$+{}\r\n\t") || strings.ContainsAny(u.Hostname(), "/\\ *?()|^$+{}\r\n\t") {
			t.Errorf("host %q or URL %q is accepted", host, text)
		}
		if _, err := httpcheck.New(c); err != nil {
			t.Errorf("Validate accepts %q and New says %v", text, err)
		}
	})
}

func FuzzQuote_IsOneWordOfTheShell(f *testing.F) {
	for _, seed := range []string{"", "a", "it's", "$(id)", "`id`", "a\nb", "*", "~", "-n", "!x", "a;b", `\`, "#x", "=x"} {
		f.Add(seed)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") {
			return // no argument can hold one
		}
		out, err := exec.Command(sh, "-c", "printf %s:%s "+httpcheck.Quote(text)+" end").Output()
		if err != nil || string(out) != text+":end" {
			t.Errorf("sh reads %s as %q, %v, want %q", httpcheck.Quote(text), out, err, text+":end")
		}
	})
}
