package embedded_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestImports_OnlyThisFolderImportsAlertmanager keeps some 30 MB of receivers and
// cloud SDKs out of everything else, the light vantage binary above all. It reads
// the sources: nothing has to be built or listed.
func TestImports_OnlyThisFolderImportsAlertmanager(t *testing.T) {
	const (
		root   = "../../.."
		here   = "alerting/notify/embedded"
		module = "github.com/crosscheck-project/crosscheck/"
	)
	seenHere := false
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(file) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		folder := path.Dir(filepath.ToSlash(rel))
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			switch {
			case strings.HasPrefix(imported, "github.com/prometheus/alertmanager/"):
				if folder != here {
					t.Errorf("%s imports %s; only %s may", rel, imported, here)
				}
				seenHere = true
			case imported == module+here && folder != here:
				if !strings.HasPrefix(folder, "cmd/") || strings.HasPrefix(folder, "cmd/crosscheck-vantage") {
					t.Errorf("%s imports %s; only the core's composition under cmd may", rel, imported)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walk the module: %v", err)
	}
	if !seenHere {
		t.Error("found no import of Alertmanager at all: is the walk looking at the module?")
	}
}
