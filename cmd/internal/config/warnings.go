package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Warnings says what is allowed, but perhaps not what its author wants: each a
// sentence that names the key or the service, and the consequence.
func (f *File) Warnings() []string {
	var all []string
	if f.Alertmanager.ConfigFile == "" && len(f.Alertmanager.URLs) == 0 {
		all = append(all, "alertmanager: neither config_file nor urls is set: incidents are shown, and nobody is paged")
	}
	if !loopback(f.Listen) {
		all = append(all, fmt.Sprintf("listen: %s is not loopback, and there is no password: whoever reaches it sees everything and can silence pages", f.Listen))
	}
	if host, _, err := net.SplitHostPort(f.Listen); err == nil && f.ExternalURL == "" {
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			all = append(all, fmt.Sprintf("listen: %s is no address people can open, and external_url is not set: links in pages lead nowhere", f.Listen))
		}
	}
	networks := map[string]map[string]bool{}
	for _, p := range f.Places {
		if networks[p.Region] == nil {
			networks[p.Region] = map[string]bool{}
		}
		networks[p.Region][p.Network] = true
	}
	for _, s := range f.Services {
		kinds, silent := map[bool]int{}, true // silent: it listens on nothing
		for _, c := range s.Checks {
			kinds[c.Kind().Inside()]++
			silent = silent && c.Heartbeat != nil
		}
		inside, outside := kinds[true], kinds[false]
		switch {
		case inside == 0:
			all = append(all, fmt.Sprintf("service %s has no %s or %s check: dead workers are only noticed when looks from outside fail", s.Name, checks.KindPort, checks.KindWorkers))
		case outside == 0 && !silent:
			all = append(all, fmt.Sprintf("service %s has no %s check: nobody looks at it as its users do", s.Name, checks.KindHTTP))
		}
		all = append(all, deafWorkers(s)...)
		if outside > 0 && len(networks[s.Region]) == 1 {
			all = append(all, fmt.Sprintf("service %s is looked at from one network only: what is seen from outside alone stays suspected, and is never called proven", s.Name))
		}
	}
	return all
}

// deafWorkers names the instances whose workers are watched and whose listeners
// are not: whether a process is a worker, and whether it answers, cannot be told.
func deafWorkers(s Service) []string {
	var all []string
	for _, c := range s.Checks {
		if c.Workers == nil || c.Workers.Port.IsValid() {
			continue
		}
		heard := slices.ContainsFunc(s.Checks, func(o Check) bool { return o.Port != nil && o.Instance == c.Instance })
		if !heard {
			all = append(all, fmt.Sprintf("service %s: instance %s has a %s check and no %s check: what its workers listen on is not known, and much less can be proven", s.Name, c.Instance, checks.KindWorkers, checks.KindPort))
		}
	}
	return all
}

func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "localhost" {
		return err == nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
