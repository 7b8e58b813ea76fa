package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// pathMost is the longest name of a unix socket: sun_path without its last zero
// byte (unix(7)).
const pathMost = 107

// Validate reports the first fault that would make a target unwatchable.
func (c Config) Validate() error {
	seen := map[string]bool{}
	for _, t := range c.Targets {
		if t.Name == "" {
			return errors.New("host: a target has no name")
		}
		if seen[t.Name] {
			return fmt.Errorf("host: target %q twice", t.Name)
		}
		seen[t.Name] = true
		for _, fault := range []error{t.checkMain(), t.checkWorkers(), t.checkListeners()} {
			if fault != nil {
				return fmt.Errorf("host: target %q: %w", t.Name, fault)
			}
		}
	}
	return nil
}

// checkMain looks at the ways to find main.
func (t Target) checkMain() error {
	var ways []string
	for _, w := range []struct{ name, value string }{
		{"a pid file", t.PIDFile}, {"a unit", t.Unit}, {"a control group", t.Cgroup}, {"an executable or command line", t.Exe + t.Cmdline},
	} {
		if w.value != "" {
			ways = append(ways, w.name)
		}
	}
	_, bad := regexp.Compile(t.Cmdline)
	switch {
	case len(ways) == 0 && !t.Port.IsValid():
		return errors.New("neither a pid file nor a port, and no unit, control group, executable or command line either: its main process cannot be found")
	case len(ways) > 1:
		return fmt.Errorf("%s: name one way to find its main process", strings.Join(ways, " and "))
	case t.Unit != "" && (strings.Contains(t.Unit, "/") || !strings.HasSuffix(t.Unit, ".service")):
		return fmt.Errorf("unit %q must be a service by its full name, such as %q", t.Unit, "nginx.service")
	case t.Cgroup != "" && (!strings.HasPrefix(t.Cgroup, "/") || filepath.Clean(t.Cgroup) == "/"):
		return fmt.Errorf("control group %q must be a path below the root of the control groups, such as %q", t.Cgroup, "/system.slice/nginx.service")
	case t.Exe != "" && !filepath.IsAbs(t.Exe):
		return fmt.Errorf("executable %q must be an absolute path", t.Exe)
	case bad != nil:
		return fmt.Errorf("command line: %w", bad)
	}
	return nil
}

// checkWorkers looks at what says who the workers are, and at the configuration
// they run with.
func (t Target) checkWorkers() error {
	_, bad := regexp.Compile(t.WorkerName)
	switch {
	case t.WorkersBy != "" && t.WorkersBy != workersByCgroup && t.WorkersBy != workersByName:
		return fmt.Errorf("workers by %q: must be empty, %q or %q", t.WorkersBy, workersByCgroup, workersByName)
	case (t.WorkersBy == workersByName) != (t.WorkerName != ""):
		return fmt.Errorf("a worker name goes with workers by %q, and only with it", workersByName)
	case bad != nil:
		return fmt.Errorf("worker name: %w", bad)
	}
	for _, f := range t.ConfigFiles {
		if _, err := filepath.Match(f, ""); err != nil || !filepath.IsAbs(f) {
			return fmt.Errorf("configuration file %q must be an absolute path or a pattern of one", f)
		}
	}
	return nil
}

// checkListeners looks at the declared listeners and their namespace.
func (t Target) checkListeners() error {
	for _, l := range t.listeners() {
		if !l.IsValid() || l.Port() == 0 {
			return fmt.Errorf("listener %q needs an address and a port", l)
		}
	}
	for _, u := range t.UnixListeners {
		if len(u) < 2 || len(u) > pathMost || u[0] != '/' && u[0] != '@' {
			return fmt.Errorf("unix listener %q must be an absolute path or %q, of %d bytes at most", u, "@name", pathMost)
		}
	}
	if strings.Contains(t.NetNS, "/") && !filepath.IsAbs(t.NetNS) {
		return fmt.Errorf("network namespace %q must be a name below /run/netns or an absolute path", t.NetNS)
	}
	return nil
}

// The words of Target.WorkersBy.
const (
	workersByCgroup = "cgroup"
	workersByName   = "name"
)
