package config

import (
	"slices"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
)

// serviceDraft is a service while it is read: its checks refer to its
// instances, which may stand below them.
type serviceDraft struct {
	Service
	checks          []checkDraft
	instancesFaulty bool
}

// checkDraft is a check with the places of its keys.
type checkDraft struct {
	Check
	at      value
	present map[string]value
	faulty  bool
}

// readService reads one service. It is good if r has no fault afterwards.
func readService(r *reader, v value, scope scope) Service {
	s := serviceDraft{Service: Service{
		Region:       defaultRegion,
		CloseAfter:   policy.DefaultCloseAfter,
		RestartGrace: policy.DefaultRestartGrace,
	}}
	present := readMapping(r, v, serviceKeys(), &s)
	r.unique(present["name"], s.Name, scope.taken, "service")
	if _, ok := present["instances"]; !ok && s.Name != "" {
		s.Instances = []string{s.Name}
	}
	looksFromOutside := false
	for i := range s.checks {
		r.finishCheck(&s.checks[i], &s, scope)
		looksFromOutside = looksFromOutside || s.checks[i].Kind() == checks.KindHTTP
	}
	r.oneOfEach(&s)
	if looksFromOutside && scope.regions != nil && !slices.Contains(scope.regions, s.Region) {
		at, given := present["region"]
		if !given {
			at = value{v.Node, join(v.path, "region")}
		}
		r.fault(at, "no place looks from the region %s; places are in %s", quote(s.Region), listed(scope.regions))
	}
	for _, c := range s.checks {
		s.Checks = append(s.Checks, c.Check)
	}
	return s.Service
}

func readInstances(r *reader, v value, s *serviceDraft) {
	before := len(r.faults)
	lines := map[string]int{}
	for _, item := range r.items(v, "names") {
		if name, ok := r.name(item); ok {
			r.unique(item, name, lines, "instance")
			s.Instances = append(s.Instances, name)
		}
	}
	s.instancesFaulty = len(r.faults) > before
}

func readChecks(r *reader, v value, s *serviceDraft) {
	for _, item := range r.items(v, "checks") {
		before := len(r.faults)
		c := checkDraft{at: item}
		c.present = readMapping(r, item, checkKeys(), &c.Check)
		c.faulty = len(r.faults) > before
		s.checks = append(s.checks, c)
	}
}

// The defaults of checks. Chosen: outside looks cost the target a connection;
// inside looks are a reading of what the host observer knows already.
const (
	defaultOutsideInterval = 5 * time.Second
	defaultInsideInterval  = 5 * time.Second
)

// finishCheck sets the defaults that depend on the kind, and checks what one
// key says about another.
func (r *reader) finishCheck(c *checkDraft, s *serviceDraft, scope scope) {
	if !r.oneKind(c) {
		return
	}
	kind := c.Kind()
	if _, named := c.present["name"]; !named {
		c.Name = string(kind)
	}
	if _, given := c.present["interval"]; !given {
		c.Interval = defaultOutsideInterval
		if kind.Inside() {
			c.Interval = defaultInsideInterval
		}
	}
	r.finishInstance(c, s)
	if c.Heartbeat != nil && c.Heartbeat.Socket != "" {
		at := c.present["heartbeat"]
		r.unique(value{at.Node, join(at.path, "socket")}, c.Heartbeat.Socket, scope.sockets, "socket")
	}
	if kind.Inside() && !scope.agent {
		r.fault(c.present[string(kind)], "looks from inside, but agent.enabled is false; nothing would ever look")
	}
	if c.HTTP != nil && !c.faulty && c.Interval < c.HTTP.Timeout {
		at, given := c.present["interval"]
		if !given {
			at = c.present["http"]
		}
		r.fault(at, "the interval %s is shorter than the timeout %s; looks would overlap", short(c.Interval), short(c.HTTP.Timeout))
	}
}

// oneKind reports whether the check has exactly one kind.
func (r *reader) oneKind(c *checkDraft) bool {
	var kinds []string
	for _, kind := range []checks.Kind{checks.KindHTTP, checks.KindPort, checks.KindWorkers, checks.KindHeartbeat} {
		if _, ok := c.present[string(kind)]; ok {
			kinds = append(kinds, string(kind))
		}
	}
	switch {
	case len(kinds) > 1:
		r.fault(c.at, "has %d kinds (%s); make a check of each", len(kinds), strings.Join(kinds, ", "))
	case len(kinds) == 0 && !c.faulty: // else the kind may be the misspelt key
		r.fault(c.at, "has no kind; give it one of http, port, workers, heartbeat")
	}
	return len(kinds) == 1 && c.Kind() != ""
}

// finishInstance resolves the instance of an inside check and refuses one that
// the service does not have.
func (r *reader) finishInstance(c *checkDraft, s *serviceDraft) {
	at, given := c.present["instance"]
	switch {
	case s.instancesFaulty:
	case given && c.Instance != "" && !slices.Contains(s.Instances, c.Instance):
		r.fault(at, "the service has no instance %s; it has %s", quote(c.Instance), listed(s.Instances))
	case !given && c.Kind().Inside() && len(s.Instances) == 1:
		c.Instance = s.Instances[0]
	case !given && c.Kind().Inside() && len(s.Instances) > 1:
		r.fault(c.at, "looks from inside at one instance; say which with instance: %s", listed(s.Instances))
	}
}

// oneOfEach refuses two checks of one name, two workers checks of one instance
// (an instance has one main process) and one listener checked twice.
func (r *reader) oneOfEach(s *serviceDraft) {
	type listener struct {
		instance string
		port     Port
	}
	names, mains, listeners := map[string]int{}, map[string]int{}, map[listener]int{}
	for _, c := range s.checks {
		if c.Name == "" {
			continue
		}
		if line, twice := names[c.Name]; twice {
			at, given := c.present["name"]
			if !given {
				at = c.at
			}
			r.fault(at, "the check %s is already on line %d; give each a name of its own", quote(c.Name), line)
		} else {
			names[c.Name] = c.at.Line
		}
		switch {
		case c.Workers != nil && c.Instance != "":
			if line, twice := mains[c.Instance]; twice {
				r.fault(c.present["workers"], "the workers of instance %s are already checked on line %d", quote(c.Instance), line)
			}
			mains[c.Instance] = c.at.Line
		case c.Port != nil && *c.Port != (Port{}):
			key := listener{c.Instance, *c.Port}
			if line, twice := listeners[key]; twice {
				r.fault(c.present["port"], "%s is already checked on line %d", c.Port, line)
			}
			listeners[key] = c.at.Line
		}
	}
	r.unixAlone(s, mains)
}

// unixAlone refuses an instance that has unix sockets and nothing by which its
// main process is found: mains are the instances that have a workers check.
func (r *reader) unixAlone(s *serviceDraft, mains map[string]int) {
	found := map[string]bool{}
	for _, c := range s.checks {
		if c.Port != nil && c.Port.Address.IsValid() {
			found[c.Instance] = true
		}
	}
	for _, c := range s.checks {
		if c.Port == nil || c.Port.Path == "" || c.Instance == "" || found[c.Instance] || mains[c.Instance] > 0 {
			continue
		}
		found[c.Instance] = true // once
		r.fault(c.present["port"], "a unix socket does not tell whose it is; add a workers check of instance %s", quote(c.Instance))
	}
}
