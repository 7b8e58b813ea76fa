// Package config turns a crosscheck.yml into plain data. It answers what is
// configured and what is wrong with it, every fault with file, line and path.
// It repairs nothing in silence, looks at no target and starts nothing:
// Compile returns data from which the composition root builds the live parts.
package config

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// File is a whole crosscheck.yml: every key is set, by its author or to the
// default its documentation names. Paths in it are resolved against the
// folder of the file.
type File struct {
	Path         string
	DataDir      string
	Listen       string // host:port
	ExternalURL  string // empty if not given
	Places       []Place
	Agent        Agent
	Alertmanager Alertmanager
	// Services are those without a fault. Never empty.
	Services []Service
	// Refused are the services that were left out, each with its faults.
	Refused []Refusal
}

// Place is where this process's probers look from.
type Place struct {
	Name, Region, Network string
}

// Agent says whether this process looks from inside its host.
type Agent struct {
	Enabled bool
}

// Alertmanager says where pages go. At most one field is set; with neither,
// the embedded Alertmanager runs with a configuration that notifies nobody.
type Alertmanager struct {
	ConfigFile string
	URLs       []string
}

// Service is one service to watch.
type Service struct {
	Name         string
	Region       string
	CloseAfter   time.Duration
	RestartGrace time.Duration
	Runbook      string
	Instances    []string
	Checks       []Check
}

// Check is a configured look. Exactly one of its kinds is set.
type Check struct {
	Name string
	// Instance is set for inside checks, and for an http check that is pinned.
	Instance string
	Interval time.Duration
	// The kinds.
	HTTP      *httpcheck.Config
	Port      *Port
	Workers   *Workers
	Heartbeat *heartbeat.Config // without ID
}

// Kind returns the check's kind; empty for a check that has none, which Parse
// never returns.
func (c Check) Kind() checks.Kind {
	switch {
	case c.HTTP != nil:
		return checks.KindHTTP
	case c.Port != nil:
		return checks.KindPort
	case c.Workers != nil:
		return checks.KindWorkers
	case c.Heartbeat != nil:
		return checks.KindHeartbeat
	}
	return ""
}

// Port is a listener of an instance on this host. Exactly one is set.
type Port struct {
	Address netip.AddrPort
	// Path is that of a unix socket, or "@name" in the abstract namespace.
	Path string
}

// Workers says how to find an instance's processes, and what is expected of
// them.
type Workers struct {
	// How main is found. Exactly one is set, but Exe and Cmdline may be together.
	PIDFile string
	Port    netip.AddrPort
	Unit    string // of systemd
	Cgroup  string // below the cgroup mount
	Exe     string
	Cmdline string // a regular expression

	// WorkersBy is "children", "cgroup" or "name"; with "name", and only then,
	// WorkerName is a regular expression.
	WorkersBy, WorkerName string
	// MinWorkers is the declared least number of serving ones; 0 if none is.
	MinWorkers int
	// OnDemand is never set together with MinWorkers.
	OnDemand bool
	// ConfigFiles are glob patterns of what main reads.
	ConfigFiles []string
	// NetNS is the listeners' network namespace, a name or a path; empty for main's
	// own.
	NetNS string
	// Status is where the server tells of itself.
	Status Status
}

// MaxBytes is the largest file that is read. Chosen: room for about 5,000
// services of 400 bytes, and small enough that no input makes a start slow.
const MaxBytes = 2 << 20

// Load reads and parses the file at path. Beyond what Parse reports, it
// reports an alertmanager.config_file that cannot be read. The File is nil if
// a fault lies outside the services, or if no service is left.
func Load(path string) (*File, []Fault) {
	data, err := readAtMost(path, MaxBytes+1)
	if err != nil {
		return nil, []Fault{{File: path, Message: err.Error()}}
	}
	f, faults := parse(path, data, readable)
	if f != nil {
		f.settle()
	}
	return f, faults
}

// settle makes the patterns absolute that the host observer wants so.
func (f *File) settle() {
	for _, s := range f.Services {
		for _, c := range s.Checks {
			if c.Workers == nil {
				continue
			}
			for i, pattern := range c.Workers.ConfigFiles {
				if whole, err := filepath.Abs(pattern); err == nil { // else we have no folder, and the observer refuses it
					c.Workers.ConfigFiles[i] = whole
				}
			}
		}
	}
}

// Parse parses data; name stands for the file in faults, and relative paths
// are resolved against its folder. It touches nothing outside its arguments.
func Parse(name string, data []byte) (*File, []Fault) {
	return parse(name, data, func(string) error { return nil })
}

func parse(name string, data []byte, readable func(path string) error) (*File, []Fault) {
	root, faults := parseYAML(name, data)
	if len(faults) > 0 {
		return nil, faults
	}
	return readFile(name, root, readable)
}

// readAtMost reads at most limit bytes of the file at path.
func readAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", unwrapPath(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", unwrapPath(err))
	}
	return data, nil
}

// readable reports why the file at path cannot be read.
func readable(path string) error {
	_, err := readAtMost(path, 1)
	return err
}
