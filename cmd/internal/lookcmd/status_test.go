package lookcmd

import (
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

func TestParseStatus(t *testing.T) {
	for _, c := range []struct {
		flag string
		want config.Status
		err  string
	}{
		{"", config.Status{}, ""},
		{"haproxy_master=/run/master", config.Status{Server: "haproxy_master", Place: "/run/master"}, ""},
		{"nginx=http://127.0.0.1/status?a=b", config.Status{Server: "nginx", Place: "http://127.0.0.1/status?a=b"}, ""},
		{"/run/master", config.Status{}, "want SERVER=PLACE"},
		{"haproxy=/run/master", config.Status{}, "is not one of haproxy_master"},
		{"sozu=here", config.Status{}, "not the absolute path"},
	} {
		got, err := parseStatus(c.flag)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("parseStatus(%q) = %+v, %v, want %+v, %q", c.flag, got, err, c.want, c.err)
		}
	}
}

// TestPrintText_TellsOnceWhatTheServerSays: a finding that is not good has it in
// its sentence.
func TestPrintText_TellsOnceWhatTheServerSays(t *testing.T) {
	for name, f := range map[string]checks.Finding{
		"good":     {Outcome: checks.Pass, Detail: "2 workers serve", Workers: &checks.WorkerFacts{Source: "all is well (1s ago)"}},
		"not good": {Outcome: checks.Fail, Detail: "nobody serves; it says of itself: all is well (1s ago)", Workers: &checks.WorkerFacts{Source: "all is well (1s ago)"}},
	} {
		var b strings.Builder
		if err := printText(&b, result{Finding: f}); err != nil || strings.Count(b.String(), "it says of itself: all is well") != 1 {
			t.Errorf("%s: %v, printed %q", name, err, b.String())
		}
	}
}
