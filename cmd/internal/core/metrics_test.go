package core

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crosscheck-project/crosscheck/cmd/internal/vantagemetrics"
)

var update = flag.Bool("update", false, "write the table of metrics into README.md")

var descParts = regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)".*variableLabels: \{([^}]*)\}`)

// TestREADME_ListsEveryMetric: the table is made of the metrics themselves.
func TestREADME_ListsEveryMetric(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	collector{}.Describe(descs)
	vantagemetrics.Collector{}.Describe(descs)
	close(descs)
	var rows []string
	for d := range descs {
		m := descParts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		name := m[1]
		if m[3] != "" {
			name += "{" + m[3] + "}"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, m[2]))
	}
	slices.Sort(rows)
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| metric | meaning |\n|---|---|\n"
	before, _, ok := strings.Cut(string(raw), head)
	if !ok {
		t.Fatal("README.md has no table of metrics")
	}
	want := before + head + strings.Join(rows, "")
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(raw) {
		t.Error("the table of metrics in README.md is not what the metrics are; run go test ./cmd/internal/core -update")
	}
}
