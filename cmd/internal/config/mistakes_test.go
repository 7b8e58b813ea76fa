package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

var update = flag.Bool("update", false, "rewrite what testdata and README.md expect")

// Each file in testdata/mistakes is a mistake somebody can make. It ends in
// comments that say what is reported and which services are served in spite
// of it:
//
//	# want: 3: services[0].name: is missing
//	# serves: good
func TestParse_EveryMistakeHasItsLineAndItsMessage(t *testing.T) {
	paths, err := filepath.Glob("testdata/mistakes/*.yml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no mistakes found: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, faults := config.Parse("f.yml", data)
			if len(faults) == 0 {
				t.Errorf("Parse(%s) found no fault", path)
			}
			got := outcome(file, faults)
			body, want := splitWant(string(data))
			if *update {
				if err := os.WriteFile(path, []byte(body+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Parse(%s) (-want +got):\n%s", path, diff)
			}
		})
	}
}

func outcome(file *config.File, faults []config.Fault) string {
	var b strings.Builder
	for _, f := range faults {
		// "f.yml:3: path: message" without the file's name.
		b.WriteString("# want: " + strings.TrimLeft(strings.TrimPrefix(f.String(), "f.yml"), ": ") + "\n")
	}
	served := "nothing"
	if file != nil {
		var names []string
		for _, s := range file.Services {
			names = append(names, s.Name)
		}
		served = strings.Join(names, ", ")
	}
	b.WriteString("# serves: " + served + "\n")
	return b.String()
}

func splitWant(data string) (body, want string) {
	at := strings.Index(data, "\n# want: ")
	if at < 0 {
		return data, ""
	}
	return data[:at+1], data[at+1:]
}
