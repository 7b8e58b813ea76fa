package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

const quickstart = "../../../deploy/quickstart/"

func TestLoad_TheQuickstartHasNoFault(t *testing.T) {
	file, faults := config.Load(quickstart + "crosscheck.yml")
	for _, f := range faults {
		t.Errorf("Load: %s", f)
	}
	if file == nil {
		t.Fatal("Load refused the quickstart")
	}
	if err := (host.Config{Targets: config.Compile(file).Targets}).Validate(); err != nil {
		t.Errorf("the host observer refuses it: %v", err)
	}
	kinds := map[checks.Kind]bool{}
	for _, c := range config.Compile(file).Policy.Services[0].Checks {
		kinds[c.Kind] = true
	}
	for _, want := range []checks.Kind{checks.KindHTTP, checks.KindPort, checks.KindWorkers} {
		if !kinds[want] {
			t.Errorf("the quickstart has no %s check", want)
		}
	}
}

// The quickstart explains every key, set or behind a "#".
func TestQuickstart_ShowsEveryKey(t *testing.T) {
	data, err := os.ReadFile(quickstart + "crosscheck.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		name := k.Path[strings.LastIndex(k.Path, ".")+1:]
		if !regexp.MustCompile(`(?m)^[ #-]*` + regexp.QuoteMeta(name) + `:`).Match(data) {
			t.Errorf("the quickstart says nothing of %s", k.Path)
		}
	}
}

func TestQuickstart_NginxAcceptsItsFile(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
			t.Fatalf("nginx is needed: %v", err)
		}
		t.Skipf("needs nginx (Debian: nginx-light): %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	conf, err := filepath.Abs(quickstart + "nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(nginx, "-e", "stderr", "-p", dir+"/", "-c", conf, "-t").CombinedOutput()
	if err != nil {
		t.Errorf("nginx -t: %v\n%s", err, out)
	}
}
