package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// Compiled is a File as its consumers want it. It is data: the composition
// root makes checks, jobs and a judge of it.
type Compiled struct {
	Policy  policy.Policy
	Outside []OutsideCheck
	Inside  []InsideCheck
	// Targets are what the host observer has to know for Inside: one for each
	// instance that has inside checks, in the order of the file.
	Targets []host.Target
}

// OutsideCheck is a look of every prober whose place is in Region.
type OutsideCheck struct {
	ID, Service string
	Instance    string // empty: the public name
	Region      string
	Interval    time.Duration
	Timeout     time.Duration
	HTTP        httpcheck.Config
}

// InsideCheck is a look of the agent at a target of the host observer.
type InsideCheck struct {
	ID, Service, Instance string
	Kind                  checks.Kind
	Target                string            // host.Target.Name
	Listener              netip.AddrPort    // of a port check
	Path                  string            // of a port check on a unix socket, instead of Listener
	Minimum               int               // of a workers check: the least number of serving workers, or 0
	OnDemand              bool              // of a workers check: the pool may be at zero
	Status                Status            // of a workers check: where the server tells of itself
	Heartbeat             *heartbeat.Config // of a heartbeat check
	Interval, Timeout     time.Duration
}

// OutsideIn returns the outside checks that a prober in the region looks at.
func (c Compiled) OutsideIn(region string) []OutsideCheck {
	return slices.DeleteFunc(slices.Clone(c.Outside), func(o OutsideCheck) bool { return o.Region != region })
}

// insideTimeout bounds an inside look. Chosen: it reads a snapshot in memory
// and makes at most one connection over loopback.
const insideTimeout = time.Second

// Compile turns f, as Load or Parse returned it, into plain data. The policy
// in it is valid.
func Compile(f *File) Compiled {
	var c Compiled
	for _, p := range f.Places {
		c.Policy.Places = append(c.Policy.Places, policy.Place{Name: p.Name, Network: p.Network, Region: p.Region})
	}
	for _, r := range f.Refused {
		c.Policy.Refused = append(c.Policy.Refused, r.Service)
	}
	for _, s := range f.Services {
		judged := policy.Service{
			Name: s.Name, Region: s.Region, Instances: s.Instances, Runbook: s.Runbook,
			CloseAfter: s.CloseAfter, RestartGrace: s.RestartGrace,
		}
		for _, check := range s.Checks {
			id := s.Name + "/" + check.Name
			judged.Checks = append(judged.Checks, policy.Check{ID: id, Kind: check.Kind(), Instance: check.Instance, Interval: check.Interval, ScheduleOnly: !repeatable(check)})
			if check.HTTP != nil {
				c.Outside = append(c.Outside, OutsideCheck{
					ID: id, Service: s.Name, Instance: check.Instance, Region: s.Region,
					Interval: check.Interval, Timeout: check.HTTP.Timeout, HTTP: *check.HTTP,
				})
				continue
			}
			c.Inside = append(c.Inside, inside(id, s.Name, check))
		}
		c.Policy.Services = append(c.Policy.Services, judged)
		c.Targets = append(c.Targets, targets(s)...)
	}
	return c
}

// repeatable reports whether the check's request may be made at will: it is not
// made on demand otherwise (JUDGING section 4).
func repeatable(c Check) bool {
	return c.HTTP == nil || c.HTTP.Method == "" || c.HTTP.Method == "GET" || c.HTTP.Method == "HEAD"
}

func inside(id, service string, check Check) InsideCheck {
	i := InsideCheck{
		ID: id, Service: service, Instance: check.Instance, Kind: check.Kind(),
		Target: targetName(service, check.Instance), Interval: check.Interval,
		Timeout: min(insideTimeout, check.Interval),
	}
	if check.Port != nil {
		i.Listener, i.Path = check.Port.Address, check.Port.Path
	}
	if check.Heartbeat != nil {
		beats := *check.Heartbeat
		beats.ID = id
		i.Heartbeat = &beats
	}
	if check.Workers != nil {
		i.Minimum, i.OnDemand, i.Status = check.Workers.MinWorkers, check.Workers.OnDemand, check.Workers.Status
	}
	return i
}

func targetName(service, instance string) string { return service + "/" + instance }

// into tells the observer how to find the processes.
func (w *Workers) into(t *host.Target) {
	t.PIDFile, t.Port = w.PIDFile, w.Port
	t.Unit, t.Cgroup, t.Exe, t.Cmdline = w.Unit, w.Cgroup, w.Exe, w.Cmdline
	if w.WorkersBy != workersChildren { // the observer's default
		t.WorkersBy, t.WorkerName = w.WorkersBy, w.WorkerName
	}
	t.ConfigFiles, t.NetNS = w.ConfigFiles, w.NetNS
}

// targets folds the inside checks of each instance into one target. Without a
// workers check the main process is found by the first listener: whether a
// lost listener is still held is judged by who held it.
func targets(s Service) []host.Target {
	var all []host.Target
	for _, instance := range s.Instances {
		t := host.Target{Name: targetName(s.Name, instance)}
		var main *Workers
		for _, check := range s.Checks {
			switch {
			case check.Instance != instance:
			case check.Workers != nil:
				main = check.Workers
			case check.Port != nil && check.Port.Path != "":
				t.UnixListeners = append(t.UnixListeners, check.Port.Path)
			case check.Port != nil:
				t.Listeners = append(t.Listeners, check.Port.Address)
			}
		}
		switch {
		case main != nil:
			main.into(&t)
		case len(t.Listeners) > 0:
			t.Port = t.Listeners[0]
		default:
			continue // nothing looks at it from inside
		}
		all = append(all, t)
	}
	return all
}
