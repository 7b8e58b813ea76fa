package config

import (
	"path/filepath"
	"time"
)

// KeyDoc documents one key of the file. The table in README.md is made of
// these.
type KeyDoc struct {
	Path     string // services[].checks[].http.url
	Required bool
	Holds    string // what the value is
	Default  string // empty: nothing
	About    string
}

// Keys lists every key, in the order of the documentation.
func Keys() []KeyDoc {
	var docs []KeyDoc
	docs = document(docs, "", topKeys())
	docs = document(docs, "places[].", placeKeys())
	docs = document(docs, "agent.", agentKeys())
	docs = document(docs, "alertmanager.", alertmanagerKeys())
	docs = document(docs, "services[].", serviceKeys())
	docs = document(docs, "services[].checks[].", checkKeys())
	docs = document(docs, "services[].checks[].http.", httpKeys())
	docs = document(docs, "services[].checks[].port.", portKeys())
	docs = document(docs, "services[].checks[].workers.", workersKeys())
	docs = document(docs, "services[].checks[].heartbeat.", heartbeatKeys())
	docs = document(docs, "services[].checks[].workers.status.", statusKeys())
	return docs
}

func document[T any](docs []KeyDoc, prefix string, keys []key[T]) []KeyDoc {
	for _, k := range keys {
		docs = append(docs, KeyDoc{Path: prefix + k.name, Required: k.required, Holds: k.holds, Default: k.fallback, About: k.about})
	}
	return docs
}

// into turns a typed read and a destination into a key's read: a value with a
// fault leaves the default in place.
func into[T, V any](read func(*reader, value) (V, bool), field func(*T) *V) func(*reader, value, *T) {
	return func(r *reader, v value, t *T) {
		if got, ok := read(r, v); ok {
			*field(t) = got
		}
	}
}

// between is a duration with bounds.
func between(least, most time.Duration) func(*reader, value) (time.Duration, bool) {
	return func(r *reader, v value) (time.Duration, bool) { return r.duration(v, least, most) }
}

// path reads the path of a file or folder, relative to the file we read.
func (r *reader) path(v value) (string, bool) {
	s, ok := r.filled(v)
	if ok && !filepath.IsAbs(s) {
		s = filepath.Join(filepath.Dir(r.file), s)
	}
	return s, ok
}

// draft is the file while it is read: services wait until everything they
// refer to is known.
type draft struct {
	File
	services     []value
	placesFaulty bool
}

// The defaults. Those of services are the judge's (alerting/policy).
const (
	defaultDataDir = "data"
	defaultListen  = "127.0.0.1:9847"
	defaultRegion  = "default"
)

func topKeys() []key[draft] {
	return []key[draft]{
		{"data_dir", false, "path", "./data", "Where evidence, the journal and Alertmanager's state are kept; one process at a time.",
			into((*reader).path, func(d *draft) *string { return &d.DataDir })},
		{"listen", false, "address:port", defaultListen, "Where console, API, `/metrics`, `/heartbeat` and `/alertmanager` are served. There is no password: keep it on loopback or behind a proxy that asks for one.",
			into((*reader).listen, func(d *draft) *string { return &d.Listen })},
		{"external_url", false, "URL", "", "How people reach the console; links in pages begin with it.",
			into((*reader).webURL, func(d *draft) *string { return &d.ExternalURL })},
		{"places", false, "list", "one: `local`", "Where this process's probers look from.", readPlaces},
		{"agent", false, "mapping", "", "Inside looks on this host.",
			func(r *reader, v value, d *draft) { readMapping(r, v, agentKeys(), &d.Agent) }},
		{"alertmanager", false, "mapping", "built-in, notifies nobody", "Where pages go: one of its two keys.", readAlertmanager},
		{"services", true, "list", "", "What is watched. A service with a fault is left out alone.",
			func(r *reader, v value, d *draft) { d.services = r.items(v, "services") }},
	}
}

func placeKeys() []key[Place] {
	return []key[Place]{
		{"name", true, "name", "", "Unique.", into((*reader).name, func(p *Place) *string { return &p.Name })},
		{"region", false, "name", defaultRegion, "The region in which the place votes.", into((*reader).name, func(p *Place) *string { return &p.Region })},
		{"network", true, "name", "", "Whose network it is on. Two places on one network count once in a quorum.", into((*reader).name, func(p *Place) *string { return &p.Network })},
	}
}

func agentKeys() []key[Agent] {
	return []key[Agent]{
		{"enabled", false, "boolean", "true", "False refuses services with inside checks. Inside looks need Linux; elsewhere they are blind and say so.",
			into((*reader).boolean, func(a *Agent) *bool { return &a.Enabled })},
	}
}

func alertmanagerKeys() []key[Alertmanager] {
	return []key[Alertmanager]{
		{"config_file", false, "path", "", "An ordinary Alertmanager configuration for the embedded Alertmanager.",
			into((*reader).path, func(a *Alertmanager) *string { return &a.ConfigFile })},
		{"urls", false, "list of URLs", "", "External Alertmanagers instead of the embedded one; each gets every alert.", readURLs},
	}
}

func serviceKeys() []key[serviceDraft] {
	return []key[serviceDraft]{
		{"name", true, "name", "", "Unique.", into((*reader).name, func(s *serviceDraft) *string { return &s.Name })},
		{"region", false, "name", defaultRegion, "Where its instances run and whose users they serve. With an http check, the region of at least one place.",
			into((*reader).name, func(s *serviceDraft) *string { return &s.Region })},
		// 0 would mean the default to the judge, hence the lower bounds.
		{"close_after", false, "duration", "60s", "How long everything must be good before an incident closes; 1s to 24h.",
			into(between(time.Second, 24*time.Hour), func(s *serviceDraft) *time.Duration { return &s.CloseAfter })},
		{"restart_grace", false, "duration", "10s", "How long a main process that is gone with its listener counts as a restart, unless looks from outside fail too; 100ms to 1h.",
			into(between(100*time.Millisecond, time.Hour), func(s *serviceDraft) *time.Duration { return &s.RestartGrace })},
		{"runbook", false, "text", "", "A link or a sentence for the page.", into((*reader).filled, func(s *serviceDraft) *string { return &s.Runbook })},
		{"instances", false, "list of names", "one, named after the service", "Its running copies. Unique in the service.", readInstances},
		{"checks", true, "list", "", "How it is looked at.", readChecks},
	}
}

func checkKeys() []key[Check] {
	return []key[Check]{
		{"name", false, "name", "the kind", "Unique in the service; with it the check's id: `web/home`.", into((*reader).name, func(c *Check) *string { return &c.Name })},
		{"instance", false, "name", "the only one, for inside checks", "The instance looked at. An http check may be pinned to one; without, it looks at the service's public name.",
			into((*reader).name, func(c *Check) *string { return &c.Instance })},
		{"interval", false, "duration", "5s", "From look to look; 100ms to 24h, and at least the timeout. Host changes are seen at once, whatever the interval.",
			into(between(100*time.Millisecond, 24*time.Hour), func(c *Check) *time.Duration { return &c.Interval })},
		{"http", false, "mapping", "", "The kind: a whole HTTP exchange on a fresh connection, from outside. A check has one kind.", readHTTP},
		{"port", false, "mapping", "", "The kind: who listens on a port of this host, from inside.", readPort},
		{"workers", false, "mapping", "", "The kind: an instance's main process and its workers, from inside.", readWorkers},
		{"heartbeat", false, "mapping", "", "The kind: a workload that listens on nothing says by itself that it lives.", readHeartbeat},
	}
}
