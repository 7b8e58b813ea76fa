// Package arch keeps the rules of the house: which room may import which, and
// what every room must have. It holds no code of the product.
package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/crosscheck-project/crosscheck"

// A rule forbids edges: no package under From may import one under To, unless
// it is under one of Except.
type rule struct {
	from, to string
	except   []string
	because  string
}

var rules = []rule{
	{"checks", "probe", nil, "a kind knows how to look, not when, where or for whom"},
	{"checks", "alerting", nil, "a kind reports facts; what they mean is decided elsewhere"},
	{"probe", "alerting", nil, "evidence travels without knowing what it means"},
	{"alerting", "probe", []string{"probe/evidence"}, "alerting reads evidence; it neither schedules nor carries it"},
	{"alerting", "checks/httpcheck", nil, "alerting knows the vocabulary of checks, never a kind"},
	{"alerting", "checks/portcheck", nil, "alerting knows the vocabulary of checks, never a kind"},
	{"alerting", "checks/workercheck", nil, "alerting knows the vocabulary of checks, never a kind"},
	{"alerting", "checks/heartbeat", nil, "alerting knows the vocabulary of checks, never a kind"},
	{"alerting", "checks/host", nil, "alerting knows the vocabulary of checks, never the host"},
	{"alerting", "checks/serverstatus", nil, "what a server says of itself arrives as a fact, in words"},
	{"probe", "checks/serverstatus", nil, "who is asked meets configuration in cmd"},
	{"checks/workercheck", "checks/serverstatus", nil, "a kind says what it wants to be told; cmd knows who is asked how"},
	{"checks/heartbeat", "checks/host", nil, "a heartbeat is told, not seen: the kind runs where nothing of the host may be read"},
	{"probe", "checks/heartbeat", nil, "kinds meet configuration in cmd"},
	{"probe", "checks/host", nil, "a vantage runs checks; it does not look into the host itself"},
	{"probe", "checks/httpcheck", nil, "kinds meet configuration in cmd"},
	{"probe", "checks/portcheck", nil, "kinds meet configuration in cmd"},
	{"probe", "checks/workercheck", nil, "kinds meet configuration in cmd"},
	{"checks", "cmd", nil, "nothing imports cmd"},
	{"probe", "cmd", nil, "nothing imports cmd"},
	{"alerting", "cmd", nil, "nothing imports cmd"},
	{"cmd/crosscheck-vantage", "alerting/engine", nil, "the light binary judges nothing"},
	{"checks", "checks/host/hosttest", nil, "a server to break belongs into tests, not into the product"},
	{"cmd", "checks/host/hosttest", nil, "a server to break belongs into tests, not into the product"},
	{"alerting/correlate", "alerting/engine", nil, "the judge is pure; the engine owns it"},
	{"alerting/incident", "alerting/engine", nil, "incidents are pure; the engine owns them"},
}

// owners lists, for each library that must stay in one place, where it may be
// imported.
var owners = []struct {
	dependency string
	rooms      []string
	because    string
}{
	{"github.com/nats-io/nats.go", []string{"probe/wire"}, "one room speaks NATS"},
	{"github.com/nats-io/nats-server", []string{"probe/wire/hub"}, "only the core links the server"},
	{"github.com/godbus/dbus", []string{"checks/host"}, "systemd is asked in one place"},
	{"github.com/prometheus/alertmanager", []string{"alerting/notify/embedded"}, "its API changes with every minor release: one place to mend"},
	{"github.com/prometheus/client_golang", []string{"cmd", "alerting/notify/embedded"}, "rooms count; cmd gives the counters their names"},
	{"github.com/spf13/cobra", []string{"cmd"}, "command lines are composition"},
	{"go.yaml.in/yaml", []string{"cmd"}, "kinds and judges get data, not files"},
	{"google.golang.org/protobuf", []string{"checks/serverstatus"}, "one room reads a wire format that is not ours"},
	{"golang.org/x/sys/unix", []string{"checks/host", "probe/wire/hub", "cmd/internal/lab", "cmd/internal/nginx", "cmd/internal/servers", "cmd/bench", "cmd/faults"}, "the operating system is touched in few places"},
	{"net/http", []string{"cmd", "checks/httpcheck", "alerting/console", "alerting/notify/alertmanager", "alerting/notify/embedded"}, "the web is touched at the edges"},
}

// pure lists packages that import nothing but the vocabulary and what is named
// here: no I/O, no clock's goroutines, no logger.
var pure = map[string][]string{
	"alerting/policy":    {"fmt", "time"},
	"alerting/correlate": {"cmp", "container/heap", "fmt", "maps", "slices", "sort", "strconv", "strings", "time"},
	"alerting/incident":  {"cmp", "crypto/sha256", "encoding/hex", "fmt", "maps", "slices", "strconv", "strings", "time"},
	"probe/evidence":     {"cmp", "encoding/json", "errors", "fmt", "time"},
	"checks":             {"context", "fmt", "time"},
}

// vocabulary is what pure packages may import of the house.
var vocabulary = []string{"checks", "probe/evidence", "alerting/policy", "alerting/correlate"}

// heavy must not be in the light binary, in whatever way it might come.
var heavy = []string{
	"github.com/prometheus/alertmanager", "github.com/nats-io/nats-server", module + "/alerting/console",
	module + "/alerting/engine", module + "/alerting/notify", "modernc.org/sqlite",
}

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	GoFiles    []string
}

func (p pkg) room() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func packages(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,Deps,GoFiles"}, args...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func under(room, prefix string) bool { return room == prefix || strings.HasPrefix(room, prefix+"/") }

func underAny(room string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return under(room, p) })
}

func TestRooms_ImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t, "./...") {
		for _, path := range p.Imports {
			to, ours := strings.CutPrefix(path, module+"/")
			for _, r := range rules {
				if ours && under(p.room(), r.from) && under(to, r.to) && !underAny(to, r.except) {
					t.Errorf("%s imports %s: %s", p.room(), to, r.because)
				}
			}
			for _, o := range owners {
				if under(path, o.dependency) && !underAny(p.room(), o.rooms) {
					t.Errorf("%s imports %s, which belongs to %v: %s", p.room(), path, o.rooms, o.because)
				}
			}
			if allowed, isPure := pure[p.room()]; isPure && !slices.Contains(allowed, path) && !(ours && slices.Contains(vocabulary, to)) {
				t.Errorf("%s is pure and imports %s; it may import %v and %v", p.room(), path, allowed, vocabulary)
			}
		}
	}
}

func TestVantage_StaysLight(t *testing.T) {
	for _, p := range packages(t, "./cmd/crosscheck-vantage") {
		for _, dep := range p.Deps {
			for _, h := range heavy {
				if under(dep, h) {
					t.Errorf("crosscheck-vantage links %s", dep)
				}
			}
		}
	}
}

// TestPackages_SayWhatTheyAnswer: every package has one package comment, and no
// init function; the one exception says why in its README.
func TestPackages_SayWhatTheyAnswer(t *testing.T) {
	for _, p := range packages(t, "./...") {
		comments := 0
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && p.room() != "cmd/internal/lab/balancer" {
					t.Errorf("%s/%s has an init function; wire it in cmd instead", p.room(), name)
				}
			}
		}
		if comments != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s has %d package comments, want 1", p.room(), comments)
		}
	}
}

// TestFolders_HaveAReadme: a newcomer opens any folder and is told what it is.
func TestFolders_HaveAReadme(t *testing.T) {
	top := root(t)
	for _, dir := range folders(t, top) {
		hidden := slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool {
			return part == "testdata" || strings.HasPrefix(part, ".") && part != "."
		})
		if _, err := os.Stat(filepath.Join(top, dir, "README.md")); err != nil && !hidden {
			t.Errorf("%s has no README.md", dir)
		}
	}
}

// folders lists the folders that hold files of the project: what git tracks, for
// what it ignores is not the project's; every folder where there is no git.
func folders(t *testing.T, top string) []string {
	t.Helper()
	seen := map[string]bool{}
	add := func(file string) {
		for dir := path.Dir(file); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = top
	if out, err := cmd.Output(); err == nil && len(out) > 0 {
		for _, file := range strings.Fields(string(out)) {
			add(file)
		}
	} else if err := fs.WalkDir(os.DirFS(top), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			add(p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(seen))
}
