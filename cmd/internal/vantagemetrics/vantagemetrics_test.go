package vantagemetrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
)

// TestCollector_AcceptedIsAbsentWhileTheServerDoesNotTell: a zero would look like
// a restart.
func TestCollector_AcceptedIsAbsentWhileTheServerDoesNotTell(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(vantagemetrics.Collector{Accepted: []vantagemetrics.Accepted{
		{Service: "web", Instance: "web-1", Count: func() (uint64, bool) { return 41, true }},
		{Service: "web", Instance: "web-2", Count: func() (uint64, bool) { return 0, false }},
	}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got = append(got, f.GetName()+" "+m.String())
		}
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "crosscheck_instance_accepted_connections_total ") ||
		!strings.Contains(got[0], "web-1") || !strings.Contains(got[0], "value:41") {
		t.Errorf("collected %q, want 41 of web-1 alone", got)
	}
}
