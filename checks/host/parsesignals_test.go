package host

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseSched(t *testing.T) {
	if s, err := parseSched([]byte("39282211 1200 77\n")); err != nil || s != (sched{39282211, 1200}) {
		t.Errorf("parseSched = %+v, %v; want 39.28 ms run, 1.2 µs waited", s, err)
	}
	for name, bad := range map[string]string{"empty": "", "two numbers": "1 2\n", "letters": "1 a 3\n", "beyond a duration": "9223372036854775808 0 1\n"} {
		if s, err := parseSched([]byte(bad)); err == nil {
			t.Errorf("parseSched(%s) = %+v, want an error", name, s)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const text = "Name:\tTracerPid: 9\nState:\tt (tracing stop)\nTracerPid:\t4711\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"
	if s, err := parseStatus([]byte(text)); err != nil || s != (status{4711, 150}) {
		t.Errorf("parseStatus = %+v, %v; want tracer 4711, 150 switches", s, err)
	}
	for _, bad := range []string{"TracerPid:\t-1\n", "TracerPid:\t99999999999\n", "voluntary_ctxt_switches:\tmany\n"} {
		if s, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("parseStatus(%q) = %+v, want an error", bad, s)
		}
	}
}

func TestParseFDLimit(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \nMax processes             96364                96364                processes \n"
	for name, tt := range map[string]struct {
		text  string
		limit int
		ok    bool
	}{
		"a number":    {head + "Max open files            1024                 524288               files     \n", 1024, true},
		"unlimited":   {head + "Max open files            unlimited            unlimited            files     \n", 1<<31 - 1, true},
		"a great one": {"Max open files            18446744073709551614 18446744073709551614 files\n", 1<<31 - 1, true},
		"none":        {head, 0, false},
		"cut short":   {"Max open files", 0, false},
	} {
		if limit, ok := parseFDLimit([]byte(tt.text)); limit != tt.limit || ok != tt.ok {
			t.Errorf("parseFDLimit(%s) = %d, %t; want %d, %t", name, limit, ok, tt.limit, tt.ok)
		}
	}
}

func TestParseTitle(t *testing.T) {
	for in, want := range map[string]string{
		"/usr/sbin/nginx\x00-g\x00daemon off;\x00":                   "/usr/sbin/nginx -g daemon off;",
		"nginx: worker process is shutting down\x00\x00\x00\x00\x00": "nginx: worker process is shutting down",
		"":                            "",
		"\x00\x00":                    "",
		"a\nb\x1b[31m\x00":            "a b [31m",
		strings.Repeat("é", 90):       strings.Repeat("é", 64),
		"x" + strings.Repeat("é", 90): "x" + strings.Repeat("é", 63),
	} {
		if got := parseTitle([]byte(in)); got != want {
			t.Errorf("parseTitle(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParsePressure(t *testing.T) {
	const full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	for in, want := range map[string]float64{"some avg10=99.50 avg60=22.56 avg300=19.38 total=238317026\n" + full: 0.995, "some avg10=0.00 avg60=0.00\n": 0} {
		if got, ok := parsePressure([]byte(in)); !ok || got != want {
			t.Errorf("parsePressure(%q) = %g, %t; want %g", in, got, ok, want)
		}
	}
	for _, bad := range []string{"", full, "some avg10=NaN avg60=0\n", "some avg10=101 avg60=0\n", "some avg10=-1\n", "some avg10=\n"} {
		if got, ok := parsePressure([]byte(bad)); ok {
			t.Errorf("parsePressure(%q) = %g, want none", bad, got)
		}
	}
}

func TestParseCPUList(t *testing.T) {
	for in, want := range map[string]int{"0\n": 1, "0-1\n": 2, "0-3,8,10-11\n": 7} {
		if got, ok := parseCPUList([]byte(in)); !ok || got != want {
			t.Errorf("parseCPUList(%q) = %d, %t; want %d", in, got, ok, want)
		}
	}
	for _, bad := range []string{"", "\n", "3-1", "a", "0-", "-1", "0-99999999999", "1,,2"} {
		if got, ok := parseCPUList([]byte(bad)); ok {
			t.Errorf("parseCPUList(%q) = %d, want none", bad, got)
		}
	}
}

func FuzzSignals(f *testing.F) {
	f.Add([]byte("39282211 1200 77\n"))
	f.Add([]byte("TracerPid:\t4711\nvoluntary_ctxt_switches:\t150\n"))
	f.Add([]byte("Max open files            1024                 524288               files     \n"))
	f.Add([]byte("nginx: worker process is shutting down\x00\x00"))
	f.Add([]byte("some avg10=99.50 avg60=22.56 avg300=19.38 total=238317026\n"))
	f.Add([]byte("0-3,8,10-11\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSched(b); err == nil && (s.ran < 0 || s.waited < 0) {
			t.Errorf("parseSched(%q) = %+v", b, s)
		}
		if s, err := parseStatus(b); err == nil && (s.tracer < 0 || s.tracer > maxPID) {
			t.Errorf("parseStatus(%q) = %+v", b, s)
		}
		if n, ok := parseFDLimit(b); ok && n < 0 {
			t.Errorf("parseFDLimit(%q) = %d", b, n)
		}
		if s := parseTitle(b); len(s) > titleBytes || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\n\x1b") {
			t.Errorf("parseTitle(%q) = %q", b, s)
		}
		if v, ok := parsePressure(b); ok && !(v >= 0 && v <= 1) {
			t.Errorf("parsePressure(%q) = %g", b, v)
		}
		if n, ok := parseCPUList(b); ok && n <= 0 {
			t.Errorf("parseCPUList(%q) = %d", b, n)
		}
	})
}
