package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

// The table in README.md is made of Keys; -update rewrites it.
func TestReadme_ListsEveryKeyWithItsDefault(t *testing.T) {
	const path, begin, end = "README.md", "<!-- keys: begin (go test ./cmd/internal/config -update) -->\n", "<!-- keys: end -->\n"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(readme), begin)
	got, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	want := keyTable()
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("the table in %s is not that of Keys(); run go test ./cmd/internal/config -update", path)
	}
}

func keyTable() string {
	var b strings.Builder
	b.WriteString("| key | holds | default | meaning |\n|---|---|---|---|\n")
	for _, k := range config.Keys() {
		fallback := k.Default
		if k.Required {
			fallback = "**required**"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Path, k.Holds, fallback, k.About)
	}
	return b.String()
}
