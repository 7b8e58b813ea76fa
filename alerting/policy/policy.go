// Package policy is the vocabulary of judging: services, instances, the checks
// that watch them, places, and the numbers the rules use. It holds data and
// validates it; it decides nothing.
package policy

import (
	"fmt"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Policy is everything the judge knows beforehand.
type Policy struct {
	Services []Service
	Places   []Place
	// Refused names services that are configured with a fault: nobody looks at
	// them, and what is known of them is not over.
	Refused []string
}

// Place is where probers look from. Quorum counts places on different
// networks, never bare probers (JUDGING section 1).
type Place struct {
	Name    string
	Network string
	// Region is the region in which the place votes.
	Region string
}

// Service is what is paged about.
type Service struct {
	Name string
	// Region is where its instances run and whose users they serve.
	Region    string
	Instances []string
	Checks    []Check
	// CloseAfter is how long everything must be good before an incident
	// closes. Zero means DefaultCloseAfter.
	CloseAfter time.Duration
	// RestartGrace is how long a main that is gone with its listener counts as
	// a restart. Zero means DefaultRestartGrace.
	RestartGrace time.Duration
	// Runbook is a link or a sentence for the page; may be empty.
	Runbook string
}

// Check is a configured look as the judge sees it.
type Check struct {
	// ID is unique over all services: "service/name".
	ID   string
	Kind checks.Kind
	// Instance pins the check to one instance; empty means the public name.
	// Inside kinds always have one.
	Instance string
	Interval time.Duration
	// ScheduleOnly keeps the check out of looks on demand: its request is not
	// one that may be repeated at will (JUDGING section 4, "never POST").
	ScheduleOnly bool
}

// Starting values of JUDGING.md; policy can change each.
const (
	DefaultCloseAfter   = 60 * time.Second // JUDGING section 4, close_after
	DefaultRestartGrace = 10 * time.Second // JUDGING section 3, restart_grace
)

// Validity is how long evidence of the check stays evidence: 2.5 intervals
// (JUDGING section 2).
func (c Check) Validity() time.Duration { return c.Interval * 5 / 2 }

// Validate reports the first fault that would make judging ambiguous.
// Configuration reports all faults with their lines; this is the last guard.
func (p *Policy) Validate() error {
	seen := map[string]bool{}
	for _, s := range p.Services {
		if s.Name == "" || s.Region == "" {
			return fmt.Errorf("policy: service %q in region %q: both must be named", s.Name, s.Region)
		}
		if seen["s/"+s.Name] {
			return fmt.Errorf("policy: service %q twice", s.Name)
		}
		seen["s/"+s.Name] = true
		if s.CloseAfter < 0 || s.RestartGrace < 0 {
			return fmt.Errorf("policy: service %q: close after %s, restart grace %s: neither may be negative", s.Name, s.CloseAfter, s.RestartGrace)
		}
		instances := map[string]bool{}
		for _, i := range s.Instances {
			if i == "" || instances[i] {
				return fmt.Errorf("policy: service %q: instance %q without a name or twice", s.Name, i)
			}
			instances[i] = true
		}
		watched := map[string]bool{}
		for _, c := range s.Checks {
			switch {
			case c.Kind == checks.KindWorkers && watched[c.Instance]:
				return fmt.Errorf("policy: check %q: a second workers check of instance %q", c.ID, c.Instance)
			case c.ID == "" || seen["c/"+c.ID]:
				return fmt.Errorf("policy: service %q: check id %q empty or twice", s.Name, c.ID)
			case c.Interval <= 0:
				return fmt.Errorf("policy: check %q: interval %s", c.ID, c.Interval)
			case c.Instance != "" && !instances[c.Instance]:
				return fmt.Errorf("policy: check %q: instance %q is not one of service %q", c.ID, c.Instance, s.Name)
			case c.Kind.Inside() && c.Instance == "":
				return fmt.Errorf("policy: check %q: an inside check needs an instance", c.ID)
			}
			seen["c/"+c.ID] = true
			watched[c.Instance] = watched[c.Instance] || c.Kind == checks.KindWorkers
		}
	}
	for _, p := range p.Places {
		if p.Name == "" || p.Network == "" || p.Region == "" {
			return fmt.Errorf("policy: place %q: name, network %q and region %q must be set", p.Name, p.Network, p.Region)
		}
		if seen["p/"+p.Name] {
			return fmt.Errorf("policy: place %q twice", p.Name)
		}
		seen["p/"+p.Name] = true
	}
	return nil
}
