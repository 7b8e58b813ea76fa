package config

import (
	"fmt"
	"net"
	"net/netip"

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
	networks := map[string]map[string]bool{}
	for _, p := range f.Places {
		if networks[p.Region] == nil {
			networks[p.Region] = map[string]bool{}
		}
		networks[p.Region][p.Network] = true
	}
	for _, s := range f.Services {
		kinds := map[bool]int{}
		for _, c := range s.Checks {
			kinds[c.Kind().Inside()]++
		}
		inside, outside := kinds[true], kinds[false]
		switch {
		case inside == 0:
			all = append(all, fmt.Sprintf("service %s has no %s or %s check: dead workers are only noticed when looks from outside fail", s.Name, checks.KindPort, checks.KindWorkers))
		case outside == 0:
			all = append(all, fmt.Sprintf("service %s has no %s check: nobody looks at it as its users do", s.Name, checks.KindHTTP))
		}
		if outside > 0 && len(networks[s.Region]) == 1 {
			all = append(all, fmt.Sprintf("service %s is looked at from one network only: what is seen from outside alone stays suspected, and is never called proven", s.Name))
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
