package config

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The readers of the kinds that look at a host: port and workers.

func readPort(r *reader, v value, c *Check) {
	c.Port = &Port{}
	readMapping(r, v, portKeys(), c.Port)
}

func portKeys() []key[Port] {
	return []key[Port]{
		{"address", true, "IP address:port, or unix:PATH", "", "The listener, as the server binds it. `unix:@name` is one in the abstract namespace.", readListener},
	}
}

// readListener reads what a server binds: an address and a port, or a unix socket.
func readListener(r *reader, v value, p *Port) {
	if strings.HasPrefix(v.Value, unixPrefix) {
		p.Path = r.socketPath(v)
		return
	}
	if strings.HasPrefix(v.Value, "/") || strings.HasPrefix(v.Value, "@") {
		r.fault(v, "%s is not an address; write %s for a unix socket", quote(v.Value), quote(unixPrefix+v.Value))
		return
	}
	if a, ok := r.address(v); ok {
		p.Address = a
	}
}

const (
	unixPrefix = "unix:"
	// socketPathMax is the longest path of a unix socket: unix(7), sun_path less
	// its final zero byte.
	socketPathMax = 107
)

// socketPath reads a unix socket's path, which the kernel lists as it was bound,
// or its abstract name.
func (r *reader) socketPath(v value) string {
	s, ok := r.text(v)
	path := strings.TrimPrefix(s, unixPrefix)
	abstract := strings.HasPrefix(path, "@") && len(path) > 1
	switch {
	case !ok:
	case !abstract && !strings.HasPrefix(path, "/"):
		r.fault(v, "%s is no absolute path; write unix:/run/name.sock, or unix:@name in the abstract namespace", quote(path))
	case len(path) > socketPathMax:
		r.fault(v, "the path has %d bytes; a unix socket's has at most %d", len(path), socketPathMax)
	default:
		return path
	}
	return ""
}

// The ways to tell workers.
const (
	workersChildren = "children"
	workersCgroup   = "cgroup"
	workersName     = "name"
)

// mainKeys are the ways to find main.
var mainKeys = []string{"pid_file", "port", "unit", "cgroup", "exe", "cmdline"}

func workersKeys() []key[Workers] {
	return []key[Workers]{
		{"pid_file", false, "path", "", "Where the server writes the pid of its main process. This is one way to find it, the next five keys are others; exactly one is given.", into((*reader).path, func(w *Workers) *string { return &w.PIDFile })},
		{"port", false, "IP address:port", "", "Found as the owner of this listener.", into((*reader).address, workersPort)},
		{"unit", false, "text", "", "Found as the main process of this systemd service.", into((*reader).unit, func(w *Workers) *string { return &w.Unit })},
		{"cgroup", false, "path", "", "Found among the processes of this control group; the path below the cgroup mount.", into((*reader).cgroup, func(w *Workers) *string { return &w.Cgroup })},
		{"exe", false, "path", "", "Found as the process that runs this executable; with `cmdline`, both must match.", into((*reader).absolute, func(w *Workers) *string { return &w.Exe })},
		{"cmdline", false, "regular expression", "", "Found as the process whose command line, arguments joined by blanks, matches. Of several, here as for `exe` and `cgroup`, main is the ancestor of the others, else the oldest.", into((*reader).pattern, func(w *Workers) *string { return &w.Cmdline })},
		{"workers_by", false, "children, cgroup or name", workersChildren, "Who main's workers are: its children, every other process of its control group, or those of its tree or group named by `worker_name`.", into((*reader).workersBy, func(w *Workers) *string { return &w.WorkersBy })},
		{"worker_name", false, "regular expression", "", "With `workers_by: name`: the workers' process names match it.", into((*reader).pattern, func(w *Workers) *string { return &w.WorkerName })},
		{"min_workers", false, "number", "none", "Fewer serving workers than this for 10 s is a fault; from 1 up.", func(r *reader, v value, w *Workers) {
			if n, ok := r.count(v); ok {
				w.MinWorkers = int(min(n, 1<<30)) // more than any kernel runs
			}
		}},
		{"on_demand", false, "boolean", "false", "The pool may be at zero while nothing waits; not with `min_workers`.", into((*reader).boolean, func(w *Workers) *bool { return &w.OnDemand })},
		{"config_files", false, "list of globs", "", "What main reads when it starts or reloads; one that is newer than every worker was not loaded, or refused, and is named beside a fault.", readConfigFiles},
		{"netns", false, "name or path", "main's own", "The network namespace of the listeners: a name below /run/netns, or a path.", into((*reader).netns, func(w *Workers) *string { return &w.NetNS })},
		{"status", false, "mapping", "", "Where the server tells of itself. Its word is shown beside what was seen, and decides nothing.", readStatus},
	}
}

func readWorkers(r *reader, v value, c *Check) {
	before := len(r.faults)
	c.Workers = &Workers{WorkersBy: workersChildren}
	present := readMapping(r, v, workersKeys(), c.Workers)
	var ways []string
	for _, k := range mainKeys {
		if _, ok := present[k]; ok {
			ways = append(ways, k)
		}
	}
	switch {
	case slices.Equal(ways, []string{"exe", "cmdline"}): // one way, in two words
	case len(ways) > 1:
		r.fault(v, "has %s; the main process is found by one of them", strings.Join(ways, " and "))
	case len(ways) == 0 && len(r.faults) == before:
		r.fault(v, "needs one of %s to find the main process", strings.Join(mainKeys, ", "))
	}
	name, named := present["worker_name"]
	by, told := present["workers_by"]
	switch {
	case named && !told:
		r.fault(name, "is read with workers_by: name only; write that too")
	case named && (by.Value == workersChildren || by.Value == workersCgroup):
		r.fault(name, "is read with workers_by: name only; it is %s", by.Value)
	case !named && c.Workers.WorkersBy == workersName:
		r.fault(by, "name needs worker_name to know which processes are meant")
	}
	if at, ok := present["min_workers"]; ok && c.Workers.OnDemand {
		r.fault(at, "contradicts on_demand: a pool that may be at zero has no least number of workers")
	}
}

// absolute reads a path that means the same wherever our own file lies.
func (r *reader) absolute(v value) (string, bool) {
	s, ok := r.filled(v)
	switch {
	case !ok:
	case !filepath.IsAbs(s):
		r.fault(v, "%s is not an absolute path", quote(s))
	case s != filepath.Clean(s):
		r.fault(v, "%s is not a plain path; write %s", quote(s), quote(filepath.Clean(s)))
	default:
		return s, true
	}
	return "", false
}

// cgroup reads the path of a control group that is not the root: everything is
// in that one.
func (r *reader) cgroup(v value) (string, bool) {
	s, ok := r.absolute(v)
	if ok && s == "/" {
		r.fault(v, "is the group of everything; name the server's own")
		return "", false
	}
	return s, ok
}

// netns reads a network namespace as ip-netns(8) names it, or a path to one.
func (r *reader) netns(v value) (string, bool) {
	s, ok := r.filled(v)
	if ok && strings.Contains(s, "/") {
		return r.absolute(v)
	}
	return s, ok
}

// unit reads the name of a systemd service.
func (r *reader) unit(v value) (string, bool) {
	s, ok := r.filled(v)
	if !ok {
		return "", false
	}
	if !unitForm.MatchString(s) {
		r.fault(v, "%s is not a service by its full name; write for example nginx.service", quote(s))
		return "", false
	}
	return s, true
}

// unitForm: systemd.unit(5): these characters, at most 255 with the type. Of all
// types only a service has a main process.
var unitForm = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,247}\.service$`)

// pattern reads a regular expression (RE2, as Go has it).
func (r *reader) pattern(v value) (string, bool) {
	s, ok := r.filled(v)
	if !ok {
		return "", false
	}
	if _, err := regexp.Compile(s); err != nil {
		r.fault(v, "%s", strings.Replace(err.Error(), "error parsing regexp: ", "is not a regular expression: ", 1))
		return "", false
	}
	return s, true
}

func (r *reader) workersBy(v value) (string, bool) {
	s, ok := r.filled(v)
	all := []string{workersChildren, workersCgroup, workersName}
	if ok && !slices.Contains(all, s) {
		r.fault(v, "%s is none of %s", quote(s), strings.Join(all, ", "))
		return "", false
	}
	return s, ok
}

// readConfigFiles reads glob patterns, relative to the folder of the file we read.
func readConfigFiles(r *reader, v value, w *Workers) {
	lines := map[string]int{}
	for _, item := range r.items(v, "files or globs") {
		s, ok := r.path(item)
		if !ok {
			continue
		}
		if _, err := filepath.Match(s, ""); err != nil {
			r.fault(item, "%s is not a glob: %s", quote(s), err)
			continue
		}
		r.unique(item, s, lines, "file")
		w.ConfigFiles = append(w.ConfigFiles, s)
	}
}

func workersPort(w *Workers) *netip.AddrPort { return &w.Port }

// String is how a listener is written in the file.
func (p Port) String() string {
	if p.Path != "" {
		return unixPrefix + p.Path
	}
	return p.Address.String()
}
