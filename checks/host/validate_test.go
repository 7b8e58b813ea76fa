package host_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

func TestValidate_SaysWhatIsWrong(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:80")
	for name, tt := range map[string]struct {
		target host.Target
		want   string
	}{
		"no way to find main":       {host.Target{}, "neither a pid file nor a port"},
		"two ways":                  {host.Target{PIDFile: "/p", Unit: "n.service"}, "a pid file and a unit: name one way"},
		"a unit without its type":   {host.Target{Unit: "nginx"}, `unit "nginx" must be a service by its full name`},
		"a unit that is a path":     {host.Target{Unit: "/n.service"}, "must be a service"},
		"a relative group":          {host.Target{Cgroup: "system.slice"}, "must be a path below the root"},
		"the root group":            {host.Target{Cgroup: "/"}, "must be a path below the root"},
		"a relative executable":     {host.Target{Exe: "nginx"}, "must be an absolute path"},
		"a bad expression":          {host.Target{Cmdline: "("}, "command line: error parsing regexp"},
		"workers by something else": {host.Target{Port: at, WorkersBy: "uid"}, `must be empty, "cgroup" or "name"`},
		"workers by no name":        {host.Target{Port: at, WorkersBy: "name"}, "a worker name goes with"},
		"a name for nothing":        {host.Target{Port: at, WorkerName: "x"}, "a worker name goes with"},
		"a bad name":                {host.Target{Port: at, WorkersBy: "name", WorkerName: "("}, "worker name: error parsing"},
		"a bad pattern":             {host.Target{Port: at, ConfigFiles: []string{"/etc/[x"}}, "a pattern of one"},
		"a relative config":         {host.Target{Port: at, ConfigFiles: []string{"x.conf"}}, "absolute path"},
		"a listener without port":   {host.Target{PIDFile: "/p", Listeners: []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:0")}}, "needs an address and a port"},
		"a relative socket":         {host.Target{PIDFile: "/p", UnixListeners: []string{"run/x"}}, `absolute path or "@name"`},
		"an endless socket":         {host.Target{PIDFile: "/p", UnixListeners: []string{"/" + strings.Repeat("x", 107)}}, "of 107 bytes at most"},
		"a relative namespace":      {host.Target{Port: at, NetNS: "run/x"}, "must be a name below /run/netns"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.target.Name = "it"
			err := host.Config{Targets: []host.Target{tt.target}}.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), `host: target "it": `) {
				t.Errorf("Validate() = %v, want %q", err, tt.want)
			}
		})
	}
	good := []host.Target{
		{Name: "a", Unit: "nginx.service", ConfigFiles: []string{"/etc/nginx/*.conf"}, NetNS: "web"},
		{Name: "b", Cgroup: "/docker/x", WorkersBy: "cgroup", UnixListeners: []string{"/run/x.sock", "@y"}},
		{Name: "c", Exe: "/usr/bin/python3", Cmdline: "gunicorn", WorkersBy: "name", WorkerName: "^worker"},
		{Name: "d", PIDFile: "/p", Port: at},
	}
	if err := (host.Config{Targets: good}).Validate(); err != nil {
		t.Errorf("Validate() = %v, want nil", err)
	}
}
