package balancer

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBalancer_ImportsOnlyWhatIsInitialisedFirst(t *testing.T) {
	// Each further import moves the take-over behind other packages'
	// initialisation: encoding/json costs 8 ms per worker (README).
	allowed := map[string]bool{"errors": true, "os": true, "strconv": true, "sync": true, "syscall": true, "time": true, "unsafe": true}
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatalf("list imports: %v", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !allowed[name] {
			t.Errorf("package balancer imports %s, which delays the take-over", name)
		}
	}
}

func FuzzMessage_IsJSONAndComesBack(f *testing.F) {
	f.Add("op", "add")
	f.Add("host", "example.com/")
	f.Add("\"\\", "\x00\x1f\n\u00e9")
	f.Fuzz(func(t *testing.T, name, value string) {
		line := string(appendMessage(nil, message{{name, value}, {"op", "x"}}))
		line, ok := strings.CutSuffix(line, "\n")
		if !ok || strings.Contains(line, "\n") {
			t.Fatalf("appendMessage = %q, want one line", line)
		}
		m, err := parseMessage(line)
		if err != nil || len(m) != 2 || m[0].name != name || m[0].value != value || m[1].value != "x" {
			t.Fatalf("parseMessage(%q) = %q, %v, want what was written", line, m, err)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return // JSON replaces what is no text
		}
		var want map[string]string
		if err := json.Unmarshal([]byte(line), &want); err != nil {
			t.Fatalf("json.Unmarshal(%q): %v", line, err)
		}
		if name != "op" && want[name] != value {
			t.Errorf("json reads %q as %q, want %q", line, want[name], value)
		}
	})
}

func FuzzParseMessage_AcceptsOnlyJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `{"op":"add"}`, `{"a":"\u000a"}`, `{"a":1}`, `{,}`, `{"a":"b",}`, `{"a":"\u00f1"}`, `{"":"\u00X0"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if _, err := parseMessage(line); err == nil && !json.Valid([]byte(line)) {
			t.Errorf("parseMessage(%q) accepts what is not JSON", line)
		}
	})
}

func FuzzParseHead_NeverPanics(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	f.Add("\r\n\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		r := parseHead([]byte(head))
		if r.keep && !r.valid {
			t.Errorf("parseHead(%q) keeps the connection of no request", head)
		}
	})
}

func TestParseHead(t *testing.T) {
	for name, row := range map[string]struct {
		head string
		want request
	}{
		"an HTTP/1.1 request is kept":      {"GET / HTTP/1.1\r\nHost: A.b:80\r\n\r\n", request{valid: true, keep: true, host: "a.b"}},
		"Connection: close is heeded":      {"GET / HTTP/1.1\r\nconnection: Close\r\n\r\n", request{valid: true}},
		"HTTP/1.0 is closed":               {"GET / HTTP/1.0\r\n\r\n", request{valid: true}},
		"a body is not read, so we close":  {"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n", request{valid: true}},
		"a chunked body likewise":          {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", request{valid: true}},
		"a length of zero is no body":      {"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", request{valid: true, keep: true}},
		"HEAD has no body in the answer":   {"HEAD / HTTP/1.1\r\n\r\n", request{valid: true, keep: true, head: true}},
		"cookies are kept for the rule":    {"GET / HTTP/1.1\r\nCookie: a=1; b\r\n\r\n", request{valid: true, keep: true, cookies: "a=1; b"}},
		"TLS on the plain port is refused": {"\x16\x03\x01\x02\r\n\r\n", request{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseHead([]byte(row.head)); got != row.want {
				t.Errorf("parseHead(%q) = %+v, want %+v", row.head, got, row.want)
			}
		})
	}
}

// What the rule does with PoisonCookie the lab's own tests see: it never returns.
func TestCookieRule_ReturnsUnlessAMalformedCookieFollowsAValidOne(t *testing.T) {
	for _, cookies := range []string{"", ";", "broken", "broken; broken;", "a=1", "a=1;", "a=1; b=2; c=3", "broken; a=1", "a=1; broken"} {
		cookieRule(cookies)
	}
}

func TestTempDirOf_IsOneTheLabMade(t *testing.T) {
	for file, want := range map[string]string{
		"/tmp/crosscheck-lab-17/lab.pid": "/tmp/crosscheck-lab-17",
		"/crosscheck-lab-17/imposter":    "/crosscheck-lab-17",
		"/tmp/crosscheck-lab-/lab.pid":   "", "/tmp/crosscheck-demo-17/lab.pid": "", "/run/lab.pid": "", "/lab.pid": "", "lab.pid": "", "": "",
	} {
		dir, ours := TempDirOf(file)
		if ours != (want != "") || ours && dir != want {
			t.Errorf("TempDirOf(%q) = %q, %t, want %q", file, dir, ours, want)
		}
	}
}
