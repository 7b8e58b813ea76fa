package console_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/console"
)

var update = flag.Bool("update", false, "rewrite testdata")

// show asks a console for path, in a bubble whose clock begins at midnight UTC
// of 2000-01-01. The view is made inside the bubble.
func show(t *testing.T, method, path string, view func(now time.Time) console.View) *http.Response {
	t.Helper()
	var answer *http.Response
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		h := console.New(console.Deps{View: func() console.View { return view(time.Now()) }})
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		answer = w.Result()
	})
	return answer
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// outage is the Clever Cloud outage as the console shows it, beside a service
// that is fine, one of which nothing is known, and one that was refused.
func outage(now time.Time) console.View {
	const sentence = "public-lb par DOWN: main alive, 0 of 4 workers; 41 replacements died within 5 ms each (SIGABRT)"
	return console.View{
		GeneratedAt: now.Add(-time.Second),
		Ready:       true,
		Services: []console.Row{
			{Service: "api", Region: "par", Verdict: "up", Certainty: "certain", Since: now.Add(-72 * time.Hour),
				Outside: []console.Line{{Check: "api/http", Source: "paris-1/p1", Outcome: "pass", Text: "200 in 12 ms", At: now.Add(-2 * time.Second)}},
				Inside:  []console.Line{{Check: "api/workers", Source: "paris-1/agent", Outcome: "blind", Reason: "no_permission", At: now.Add(-time.Second)}}},
			{Service: "batch", Region: "osl", Verdict: "unknown"},
			{Service: "cache", Region: "par", Verdict: "degraded", Cause: "http_failing", Certainty: "suspected", Since: now.Add(-10 * time.Minute),
				Outside: []console.Line{{Check: "cache/http", Source: "paris-1/p1", Outcome: "fail", Reason: "no_answer", At: now.Add(-3 * time.Second)}}},
			{Service: "public-lb", Region: "par", Verdict: "down", Cause: "workers_crash_looping", Certainty: "certain", Since: now.Add(-90 * time.Second),
				Sentence: sentence, Incident: "3f2a9c",
				Outside: []console.Line{
					{Check: "public-lb/http", Source: "paris-1/p1", Outcome: "fail", Reason: "connect_refused", Text: "connection refused by 192.0.2.1:443", At: now.Add(-2 * time.Second)},
					{Check: "public-lb/http", Source: "paris-2/p2", Outcome: "warn", Text: "200 in 1.8 s", At: now.Add(-4 * time.Second)},
				},
				Inside: []console.Line{{Check: "public-lb/workers", Source: "paris-1/agent", Outcome: "fail", Reason: "no_serving_worker", Text: "0 of 4 workers serve", At: now.Add(-time.Second)}}},
		},
		Refusals: []console.Refusal{{Service: "shop", File: "crosscheck.yml", Line: 12, Path: "services[2].checks[0].http.host",
			Message: `"example.com/" is not a hostname: it ends in a slash; write "example.com"`}},
		Incidents: []console.Incident{
			{ID: "3f2a9c", Service: "public-lb", Region: "par", Verdict: "down", Severity: "page", Cause: "workers_crash_looping", Certainty: "certain", Sentence: sentence, OpenedAt: now.Add(-89 * time.Second)},
			{ID: "11b0de", Service: "api", Region: "par", Verdict: "degraded", Severity: "ticket", Cause: "http_failing", Certainty: "suspected", OpenedAt: now.Add(-80 * time.Hour), ClosedAt: now.Add(-72 * time.Hour)},
		},
	}
}

func TestConsole_ShowsAnOutageAsItShould(t *testing.T) {
	for file, path := range map[string]string{"testdata/outage.html": "/?refresh=off", "testdata/outage.json": "/api/v1/status"} {
		got := styleHash.ReplaceAllString(body(t, show(t, http.MethodGet, path, outage)), "style.css?HASH")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("GET %s (-%s +got):\n%s", path, file, diff)
		}
	}
}

// styleHash is masked: the page need not change when a colour does.
var styleHash = regexp.MustCompile(`style\.css\?[0-9a-f]+`)

// element is a start tag of a page with its attributes and the text before the
// next tag.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

// elements reads a page as strict XML: a tag that is not closed, or text that
// is not escaped, fails the test.
func elements(t *testing.T, page string) []element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Entity = xml.HTMLEntity
	var all []element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v\n%s", err, page)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += string(token)
			}
		}
	}
}

// hostile puts s into every text of a view.
func hostile(s string) func(now time.Time) console.View {
	return func(now time.Time) console.View {
		line := console.Line{Check: s, Source: s, Outcome: s, Reason: s, Text: s, At: now}
		return console.View{
			GeneratedAt: now,
			Services: []console.Row{{Service: s, Region: s, Verdict: s, Cause: s, Certainty: s, Sentence: s, Incident: s,
				Outside: []console.Line{line}, Inside: []console.Line{line, {Check: s, Reason: s}}}},
			Refusals:  []console.Refusal{{Service: s, File: s, Path: s, Message: s}},
			Incidents: []console.Incident{{ID: s, Service: s, Region: s, Verdict: s, Severity: s, Cause: s, Certainty: s, Sentence: s}},
		}
	}
}

func TestPage_HostileNamesStayText(t *testing.T) {
	plain := elements(t, body(t, show(t, http.MethodGet, "/", hostile("web"))))
	for _, s := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</title></style><b>`,
		`javascript:alert(1)`, `{{.}}`, `<!--`, `]]>`, "\u202egnp.exe", "a\x00b\x1b[31m",
	} {
		t.Run(s, func(t *testing.T) {
			page := body(t, show(t, http.MethodGet, "/", hostile(s)))
			if strings.ContainsAny(s, "\x00") {
				// NUL is no character of XML; that it is replaced is enough.
				if strings.Contains(page, "\x00") {
					t.Error("the page contains a NUL byte")
				}
				return
			}
			got := elements(t, page)
			if len(got) != len(plain) {
				t.Fatalf("the page has %d elements, want the %d it has with a plain name", len(got), len(plain))
			}
			for i := range got {
				if diff := cmp.Diff(plain[i].attrs, got[i].attrs); got[i].name != plain[i].name || diff != "" {
					t.Errorf("element %d is <%s>, want <%s>; attributes (-want +got):\n%s", i, got[i].name, plain[i].name, diff)
				}
			}
		})
	}
}

func TestPage_HasNothingThatItsPolicyWouldBlock(t *testing.T) {
	answer := show(t, http.MethodGet, "/", outage)
	policy := answer.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'; ") || strings.Contains(policy, "unsafe") {
		t.Errorf("Content-Security-Policy = %q", policy)
	}
	for _, e := range elements(t, body(t, answer)) {
		if slices.Contains([]string{"script", "style", "img", "iframe", "object", "form", "base"}, e.name) {
			t.Errorf("the page has a <%s>", e.name)
		}
		for name, v := range e.attrs {
			if name == "style" || name == "src" || strings.HasPrefix(name, "on") {
				t.Errorf("<%s> has the attribute %s=%q", e.name, name, v)
			}
			if name == "href" && strings.Contains(v, ":") {
				t.Errorf("<%s> links to another party: %q", e.name, v)
			}
		}
	}
}

func TestPage_CanBeReadWithoutEyesColourOrScript(t *testing.T) {
	all := elements(t, body(t, show(t, http.MethodGet, "/", outage)))
	count := map[string]int{}
	ids := map[string]bool{}
	for _, e := range all {
		count[e.name]++
		ids[e.attrs["id"]] = true
		switch e.name {
		case "html":
			if e.attrs["lang"] != "en" {
				t.Errorf("<html> has lang=%q", e.attrs["lang"])
			}
		case "th":
			if e.attrs["scope"] == "" {
				t.Errorf("the table header %q has no scope", e.text)
			}
		case "time":
			if _, err := time.Parse(time.RFC3339, e.attrs["datetime"]); err != nil {
				t.Errorf("<time>: %v", err)
			}
		}
		if id := e.attrs["aria-labelledby"]; id != "" && !ids[id] && id != "services" && id != "refusals" && id != "incidents" {
			t.Errorf("<%s> is labelled by %q, which is not there", e.name, id)
		}
	}
	for name, want := range map[string]int{"h1": 1, "main": 1, "header": 1, "footer": 1, "title": 1, "table": 3} {
		if count[name] != want {
			t.Errorf("the page has %d <%s>, want %d", count[name], name, want)
		}
	}
	// Each verdict's class has a shape of its own; the word follows the shape.
	shapes := map[string]string{}
	for i, e := range all {
		if class, ok := strings.CutPrefix(e.attrs["class"], "word "); ok {
			shape, word, _ := strings.Cut(all[i+1].text, " ")
			if shapes[shape] = class; word == "" {
				t.Errorf("the verdict of class %s has no word", class)
			}
		}
	}
	want := map[string]string{"●": "good", "▲": "warn", "■": "bad", "?": "unknown"}
	if diff := cmp.Diff(want, shapes); diff != "" {
		t.Errorf("shapes of verdicts (-want +got):\n%s", diff)
	}
}

func TestPage_NothingLooksUpThatIsNotKnownToBeUp(t *testing.T) {
	for _, verdict := range []string{"", "unknown", "UP", "healthy", "up "} {
		view := func(now time.Time) console.View {
			return console.View{GeneratedAt: now, Ready: true, Services: []console.Row{{Service: "web", Verdict: verdict}}}
		}
		page := body(t, show(t, http.MethodGet, "/", view))
		if strings.Contains(page, `"good"`) || strings.Contains(page, "1 up") || !strings.Contains(page, "1 unknown") {
			t.Errorf("the verdict %q looks up:\n%s", verdict, page)
		}
	}
}

func TestConsole_SaysWhenItsDataAreStaleOrIncomplete(t *testing.T) {
	tests := map[string]struct {
		age       time.Duration
		ready     bool
		wantStale bool
	}{
		"fresh":                 {time.Second, true, false},
		"at the limit":          {console.StaleAfter, true, false},
		"beyond it":             {console.StaleAfter + time.Millisecond, true, true},
		"fresh, still starting": {0, false, false},
		"from the future":       {-time.Hour, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			view := func(now time.Time) console.View {
				return console.View{GeneratedAt: now.Add(-test.age), Ready: test.ready}
			}
			page := body(t, show(t, http.MethodGet, "/", view))
			if got := strings.Contains(page, "Stale."); got != test.wantStale {
				t.Errorf("the page says stale: %t, want %t", got, test.wantStale)
			}
			if got := strings.Contains(page, "Starting."); got != !test.ready {
				t.Errorf("the page says starting: %t, want %t", got, !test.ready)
			}
			var status struct{ Stale, Ready bool }
			if err := json.Unmarshal([]byte(body(t, show(t, http.MethodGet, "/api/v1/status", view))), &status); err != nil {
				t.Fatal(err)
			}
			if status.Stale != test.wantStale || status.Ready != test.ready {
				t.Errorf("the status says %+v, want stale %t and ready %t", status, test.wantStale, test.ready)
			}
		})
	}
	t.Run("never generated", func(t *testing.T) {
		page := body(t, show(t, http.MethodGet, "/", func(time.Time) console.View { return console.View{} }))
		if !strings.Contains(page, "Stale.") || !strings.Contains(page, "of unknown age") {
			t.Errorf("a view without a time is not called stale:\n%s", page)
		}
	})
}

func TestStatus_HasListsWhereThereIsNothing(t *testing.T) {
	view := func(now time.Time) console.View {
		return console.View{GeneratedAt: now, Services: []console.Row{{Service: "web", Verdict: "up"}}}
	}
	if got := body(t, show(t, http.MethodGet, "/api/v1/status", view)); strings.Contains(got, "null") {
		t.Errorf("the status contains null:\n%s", got)
	}
}

func TestConsole_AnswersOnlyWhatItHas(t *testing.T) {
	tests := map[string]struct {
		method, path string
		wantStatus   int
		wantType     string
		wantBody     bool
	}{
		"the page":              {"GET", "/", 200, "text/html; charset=utf-8", true},
		"the page's head":       {"HEAD", "/", 200, "text/html; charset=utf-8", true},
		"the style":             {"GET", "/style.css", 200, "text/css; charset=utf-8", true},
		"the status":            {"GET", "/api/v1/status", 200, "application/json", true},
		"a post to the page":    {"POST", "/", 405, "", true},
		"a delete of status":    {"DELETE", "/api/v1/status", 405, "", true},
		"a path that is not":    {"GET", "/nothing", 404, "", true},
		"below the status":      {"GET", "/api/v1/status/x", 404, "", true},
		"an icon nobody serves": {"GET", "/favicon.ico", 404, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := show(t, test.method, test.path, outage)
			if answer.StatusCode != test.wantStatus {
				t.Errorf("%s %s = %d, want %d", test.method, test.path, answer.StatusCode, test.wantStatus)
			}
			if got := answer.Header.Get("Content-Type"); test.wantType != "" && got != test.wantType {
				t.Errorf("%s %s has the type %q, want %q", test.method, test.path, got, test.wantType)
			}
			if test.wantStatus == 405 && answer.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s allows %q, want GET, HEAD", test.method, test.path, answer.Header.Get("Allow"))
			}
			for _, header := range []string{"Content-Security-Policy", "X-Content-Type-Options"} {
				if answer.Header.Get(header) == "" {
					t.Errorf("%s %s has no %s", test.method, test.path, header)
				}
			}
		})
	}
}

// A HEAD has no body on the wire: net/http drops it, so this needs a server.
func TestConsole_HeadHasNoBody(t *testing.T) {
	server := httptest.NewServer(console.New(console.Deps{View: func() console.View { return outage(time.Now()) }}))
	defer server.Close()
	answer, err := http.Head(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b := body(t, answer); b != "" || answer.ContentLength <= 0 {
		t.Errorf("HEAD / has the body %q and the length %d, want none and that of the page", b, answer.ContentLength)
	}
}

func TestPage_StandsStillWhenAsked(t *testing.T) {
	const reload = `http-equiv="refresh"`
	if page := body(t, show(t, http.MethodGet, "/", outage)); !strings.Contains(page, reload) {
		t.Error("the page does not reload itself")
	}
	if page := body(t, show(t, http.MethodGet, "/?refresh=off", outage)); strings.Contains(page, reload) {
		t.Error("the page reloads itself though asked not to")
	}
}
