package config

import (
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile reads the document: first what services refer to, then each service
// in a scope of its own, so that its faults are its own.
func readFile(name string, root *yaml.Node, readable func(string) error) (*File, []Fault) {
	r := &reader{file: name, readable: readable}
	d := draft{File: File{
		Path:    name,
		DataDir: filepath.Join(filepath.Dir(name), defaultDataDir),
		Listen:  defaultListen,
		Agent:   Agent{Enabled: true},
	}}
	present := readMapping(r, value{root, ""}, topKeys(), &d)
	if _, ok := present["places"]; !ok {
		d.Places = []Place{{Name: "local", Region: defaultRegion, Network: "local"}}
	}
	scope := scope{agent: d.Agent.Enabled, taken: map[string]int{}, sockets: map[string]int{}}
	for _, p := range d.Places {
		scope.regions = append(scope.regions, p.Region)
	}
	if d.placesFaulty {
		scope.regions = nil
	}

	var refused []Fault
	for _, v := range d.services {
		sub := &reader{file: name}
		s := readService(sub, v, scope)
		if len(sub.faults) == 0 {
			d.Services = append(d.Services, s)
			continue
		}
		sortFaults(sub.faults)
		refusal := Refusal{Service: s.Name, Faults: sub.faults}
		if s.Name == "" {
			refusal.Service = v.path
		}
		d.Refused = append(d.Refused, refusal)
		refused = append(refused, sub.faults...)
	}
	if len(d.services) > 0 && len(d.Services) == 0 {
		r.fault(present["services"], "every service is refused; nothing is left to watch")
	}
	all := slices.Concat(r.faults, refused)
	sortFaults(all)
	if len(r.faults) > 0 {
		return nil, all
	}
	return &d.File, all
}

// scope is what a service may refer to.
type scope struct {
	agent   bool
	regions []string       // of places; nil if the places have faults
	taken   map[string]int // service names and their lines
	sockets map[string]int // of heartbeats
}

func readPlaces(r *reader, v value, d *draft) {
	before := len(r.faults)
	lines := map[string]int{}
	for _, item := range r.items(v, "places") {
		p := Place{Region: defaultRegion}
		present := readMapping(r, item, placeKeys(), &p)
		r.unique(present["name"], p.Name, lines, "place")
		d.Places = append(d.Places, p)
	}
	d.placesFaulty = len(r.faults) > before
}

// unique reports a name that stands on an earlier line. An absent or faulty
// name is empty, and reported elsewhere.
func (r *reader) unique(v value, name string, lines map[string]int, what string) {
	if name == "" {
		return
	}
	if line, twice := lines[name]; twice {
		r.fault(v, "the %s %s is already on line %d", what, quote(name), line)
		return
	}
	lines[name] = v.Line
}

func readAlertmanager(r *reader, v value, d *draft) {
	present := readMapping(r, v, alertmanagerKeys(), &d.Alertmanager)
	file, hasFile := present["config_file"]
	urls, hasURLs := present["urls"]
	if hasFile && hasURLs {
		r.fault(urls, "alertmanager has a config_file already; pages go either to the embedded Alertmanager or to external ones")
	}
	if path := d.Alertmanager.ConfigFile; path != "" {
		if err := r.readable(path); err != nil {
			r.fault(file, "%s cannot be read: %s", quote(path), unwrapPath(err))
		}
	}
}

func readURLs(r *reader, v value, a *Alertmanager) {
	lines := map[string]int{}
	for _, item := range r.items(v, "URLs") {
		if s, ok := r.webURL(item); ok {
			r.unique(item, strings.TrimRight(s, "/"), lines, "URL")
			a.URLs = append(a.URLs, s)
		}
	}
}

// listed prints names in a message, each once.
func listed(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}
