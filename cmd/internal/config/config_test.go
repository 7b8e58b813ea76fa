package config_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

var comparable = cmp.Options{cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()}

// parse parses a configuration that must be without fault.
func parse(t *testing.T, text string) *config.File {
	t.Helper()
	file, faults := config.Parse("/etc/crosscheck/crosscheck.yml", []byte(text))
	for _, f := range faults {
		t.Errorf("Parse: %s", f)
	}
	if file == nil {
		t.Fatal("Parse returned no file")
	}
	return file
}

func TestParse_TheSmallestFileGetsTheDocumentedDefaults(t *testing.T) {
	got := parse(t, `
services:
  - name: web
    checks:
      - http: {url: "http://127.0.0.1:8080/"}
      - port: {address: "127.0.0.1:8080"}
      - workers: {pid_file: /run/nginx.pid}
`)
	want := &config.File{
		Path:    "/etc/crosscheck/crosscheck.yml",
		DataDir: "/etc/crosscheck/data",
		Listen:  "127.0.0.1:9847",
		Places:  []config.Place{{Name: "local", Region: "default", Network: "local"}},
		Agent:   config.Agent{Enabled: true},
		Services: []config.Service{{
			Name: "web", Region: "default", CloseAfter: time.Minute, RestartGrace: 10 * time.Second,
			Instances: []string{"web"},
			Checks: []config.Check{
				{Name: "http", Interval: 5 * time.Second, HTTP: &httpcheck.Config{
					URL: "http://127.0.0.1:8080/", Timeout: 2 * time.Second, FollowRedirects: true,
				}},
				{Name: "port", Instance: "web", Interval: 5 * time.Second, Port: &config.Port{Address: netip.MustParseAddrPort("127.0.0.1:8080")}},
				{Name: "workers", Instance: "web", Interval: 5 * time.Second, Workers: &config.Workers{PIDFile: "/run/nginx.pid", WorkersBy: "children"}},
			},
		}},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

const full = `
data_dir: /var/lib/crosscheck
listen: "[::1]:9847"
external_url: https://crosscheck.example.com/console
places:
  - {name: paris-1, region: par, network: isp-a}
  - {name: paris-2, region: par, network: isp-b}
  - {name: oslo-1, region: osl, network: isp-a}
agent: {enabled: true}
alertmanager: {config_file: alertmanager.yml}
services:
  - name: web
    region: par
    close_after: 3s
    restart_grace: 500ms
    runbook: "https://runbooks.example.com/web"
    instances: [web-1, web-2]
    checks:
      - {name: by-name, interval: 10s, http: {url: "https://web.example.com/", timeout: 1500ms, method: HEAD, host: "www.example.com:8443", headers: {X-A: b}, status: [200, "3xx", 500-503], follow_redirects: false, user_agent: probe, body_limit_bytes: 4096}}
      - {name: pinned, instance: web-1, http: {url: "http://127.0.0.1:8080/", body_contains: hello, max_redirects: 3}}
      - {name: listener, instance: web-1, interval: 500ms, port: {address: "127.0.0.1:8080"}}
      - {name: listener-6, instance: web-1, port: {address: "[::1]:8080"}}
      - {name: workers, instance: web-1, workers: {pid_file: run/web.pid}}
      - {name: workers-2, instance: web-2, workers: {port: "127.0.0.1:8081"}}
  - name: api
    region: osl
    instances: [a, b]
    checks:
      - {instance: b, port: {address: "[::ffff:127.0.0.1]:9000"}}
`

func TestCompile_EachConsumerGetsItsPlainData(t *testing.T) {
	got := config.Compile(parse(t, full))
	web, web6, api := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("[::1]:8080"), netip.MustParseAddrPort("127.0.0.1:9000")
	web2 := netip.MustParseAddrPort("127.0.0.1:8081")
	want := config.Compiled{
		Policy: policy.Policy{
			Places: []policy.Place{
				{Name: "paris-1", Region: "par", Network: "isp-a"},
				{Name: "paris-2", Region: "par", Network: "isp-b"},
				{Name: "oslo-1", Region: "osl", Network: "isp-a"},
			},
			Services: []policy.Service{
				{
					Name: "web", Region: "par", Instances: []string{"web-1", "web-2"},
					CloseAfter: 3 * time.Second, RestartGrace: 500 * time.Millisecond, Runbook: "https://runbooks.example.com/web",
					Checks: []policy.Check{
						{ID: "web/by-name", Kind: checks.KindHTTP, Interval: 10 * time.Second},
						{ID: "web/pinned", Kind: checks.KindHTTP, Instance: "web-1", Interval: 5 * time.Second},
						{ID: "web/listener", Kind: checks.KindPort, Instance: "web-1", Interval: 500 * time.Millisecond},
						{ID: "web/listener-6", Kind: checks.KindPort, Instance: "web-1", Interval: 5 * time.Second},
						{ID: "web/workers", Kind: checks.KindWorkers, Instance: "web-1", Interval: 5 * time.Second},
						{ID: "web/workers-2", Kind: checks.KindWorkers, Instance: "web-2", Interval: 5 * time.Second},
					},
				},
				{
					Name: "api", Region: "osl", Instances: []string{"a", "b"}, CloseAfter: time.Minute, RestartGrace: 10 * time.Second,
					Checks: []policy.Check{{ID: "api/port", Kind: checks.KindPort, Instance: "b", Interval: 5 * time.Second}},
				},
			},
		},
		Outside: []config.OutsideCheck{
			{ID: "web/by-name", Service: "web", Region: "par", Interval: 10 * time.Second, Timeout: 1500 * time.Millisecond, HTTP: httpcheck.Config{
				URL: "https://web.example.com/", Method: "HEAD", Host: "www.example.com:8443", Headers: map[string]string{"X-A": "b"},
				Timeout: 1500 * time.Millisecond, Status: []httpcheck.StatusRange{{From: 200, To: 200}, {From: 300, To: 399}, {From: 500, To: 503}}, UserAgent: "probe", BodyLimitBytes: 4096,
			}},
			{ID: "web/pinned", Service: "web", Instance: "web-1", Region: "par", Interval: 5 * time.Second, Timeout: 2 * time.Second, HTTP: httpcheck.Config{
				URL: "http://127.0.0.1:8080/", Timeout: 2 * time.Second, BodyContains: "hello", FollowRedirects: true, MaxRedirects: 3,
			}},
		},
		Inside: []config.InsideCheck{
			{ID: "web/listener", Service: "web", Instance: "web-1", Kind: checks.KindPort, Target: "web/web-1", Listener: web, Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond},
			{ID: "web/listener-6", Service: "web", Instance: "web-1", Kind: checks.KindPort, Target: "web/web-1", Listener: web6, Interval: 5 * time.Second, Timeout: time.Second},
			{ID: "web/workers", Service: "web", Instance: "web-1", Kind: checks.KindWorkers, Target: "web/web-1", Interval: 5 * time.Second, Timeout: time.Second},
			{ID: "web/workers-2", Service: "web", Instance: "web-2", Kind: checks.KindWorkers, Target: "web/web-2", Interval: 5 * time.Second, Timeout: time.Second},
			{ID: "api/port", Service: "api", Instance: "b", Kind: checks.KindPort, Target: "api/b", Listener: api, Interval: 5 * time.Second, Timeout: time.Second},
		},
		Targets: []host.Target{
			{Name: "web/web-1", PIDFile: "/etc/crosscheck/run/web.pid", Listeners: []netip.AddrPort{web, web6}},
			{Name: "web/web-2", Port: web2},
			{Name: "api/b", Port: api, Listeners: []netip.AddrPort{api}},
		},
	}
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("Compile (-want +got):\n%s", diff)
	}
	if err := got.Policy.Validate(); err != nil {
		t.Errorf("Compile made a policy that is not valid: %v", err)
	}
	if in := got.OutsideIn("osl"); len(in) != 0 {
		t.Errorf("OutsideIn(osl) = %v, want none: its only service has no outside check", in)
	}
	if in := got.OutsideIn("par"); len(in) != 2 {
		t.Errorf("OutsideIn(par) has %d checks, want 2", len(in))
	}
}

func TestCompile_EveryWayToFindAndCountProcessesReachesItsConsumer(t *testing.T) {
	const address = "127.0.0.1:8080"
	port := netip.MustParseAddrPort(address)
	tests := map[string]struct {
		workers string
		target  host.Target // without name
		check   config.InsideCheck
	}{
		"by pid file":                    {"pid_file: run/a.pid", host.Target{PIDFile: "/etc/crosscheck/run/a.pid"}, config.InsideCheck{}},
		"by port":                        {"port: '127.0.0.1:81'", host.Target{Port: netip.MustParseAddrPort("127.0.0.1:81")}, config.InsideCheck{}},
		"by unit":                        {"unit: 'app@1.service'", host.Target{Unit: "app@1.service"}, config.InsideCheck{}},
		"by control group":               {"cgroup: /system.slice/a.service", host.Target{Cgroup: "/system.slice/a.service"}, config.InsideCheck{}},
		"by executable":                  {"exe: /usr/sbin/nginx", host.Target{Exe: "/usr/sbin/nginx"}, config.InsideCheck{}},
		"by command line":                {"cmdline: 'gunicorn: master'", host.Target{Cmdline: "gunicorn: master"}, config.InsideCheck{}},
		"by both of program":             {"{exe: /usr/bin/python3, cmdline: 'app:wsgi'}", host.Target{Exe: "/usr/bin/python3", Cmdline: "app:wsgi"}, config.InsideCheck{}},
		"a namespace by name":            {"{exe: /a, netns: web}", host.Target{Exe: "/a", NetNS: "web"}, config.InsideCheck{}},
		"workers are children, in words": {"{exe: /a, workers_by: children}", host.Target{Exe: "/a"}, config.InsideCheck{}},
		"workers by group":               {"{exe: /a, workers_by: cgroup}", host.Target{Exe: "/a", WorkersBy: "cgroup"}, config.InsideCheck{}},
		"workers by name":                {"{exe: /a, workers_by: name, worker_name: '^a-worker$'}", host.Target{Exe: "/a", WorkersBy: "name", WorkerName: "^a-worker$"}, config.InsideCheck{}},
		"a minimum":                      {"{exe: /a, min_workers: 3}", host.Target{Exe: "/a"}, config.InsideCheck{Minimum: 3}},
		"a minimum, not on demand":       {"{exe: /a, min_workers: 3, on_demand: false}", host.Target{Exe: "/a"}, config.InsideCheck{Minimum: 3}},
		"on demand":                      {"{exe: /a, on_demand: true}", host.Target{Exe: "/a"}, config.InsideCheck{OnDemand: true}},
		"files it reads":                 {"{exe: /a, config_files: [conf.d/*.conf, /etc/a.conf]}", host.Target{Exe: "/a", ConfigFiles: []string{"/etc/crosscheck/conf.d/*.conf", "/etc/a.conf"}}, config.InsideCheck{}},
		"another namespace":              {"{exe: /a, netns: /run/netns/web}", host.Target{Exe: "/a", NetNS: "/run/netns/web"}, config.InsideCheck{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			workers := test.workers
			if workers[0] != '{' {
				workers = "{" + workers + "}"
			}
			got := config.Compile(parse(t, "services: [{name: web, checks: [workers: "+workers+", {name: p, port: {address: '"+address+"'}}, {name: u, port: {address: 'unix:@web'}}]}]"))
			test.target.Name, test.target.Listeners, test.target.UnixListeners = "web/web", []netip.AddrPort{port}, []string{"@web"}
			if diff := cmp.Diff([]host.Target{test.target}, got.Targets, comparable); diff != "" {
				t.Errorf("Targets (-want +got):\n%s", diff)
			}
			if err := (host.Config{Targets: got.Targets}).Validate(); err != nil {
				t.Errorf("the host observer refuses them: %v", err)
			}
			common := config.InsideCheck{Service: "web", Instance: "web", Target: "web/web", Interval: 5 * time.Second, Timeout: time.Second}
			w, p, u := common, common, common
			w.ID, w.Kind, w.Minimum, w.OnDemand = "web/workers", checks.KindWorkers, test.check.Minimum, test.check.OnDemand
			p.ID, p.Kind, p.Listener = "web/p", checks.KindPort, port
			u.ID, u.Kind, u.Path = "web/u", checks.KindPort, "@web"
			if diff := cmp.Diff([]config.InsideCheck{w, p, u}, got.Inside, comparable); diff != "" {
				t.Errorf("Inside (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings_SayWhatIsAllowedButPerhapsNotMeant(t *testing.T) {
	tests := map[string]struct {
		file string
		want []string
	}{
		"nothing to warn of": {
			"places: [{name: a, network: x}, {name: b, network: y}]\nalertmanager: {config_file: a.yml}\n" +
				"services: [{name: web, checks: [http: {url: http://127.0.0.1/}, workers: {pid_file: a}, port: {address: \"127.0.0.1:80\"}]}]",
			nil,
		},
		"nobody is paged, one network, nothing inside, open to all": {
			"listen: 0.0.0.0:9847\nservices: [{name: web, checks: [http: {url: http://127.0.0.1/}]}]",
			[]string{"alertmanager: neither", "listen: 0.0.0.0:9847 is not loopback", "listen: 0.0.0.0:9847 is no address people can open", "service web has no port or workers check", "service web is looked at from one network only"},
		},
		"nothing outside": {
			"listen: localhost:9847\nalertmanager: {urls: [http://am1:9093, http://am2:9093]}\nservices: [{name: web, checks: [workers: {pid_file: a}]}]",
			[]string{"service web has no http check", "service web: instance web has a workers check and no port check"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := parse(t, test.file).Warnings()
			if len(got) != len(test.want) {
				t.Fatalf("Warnings() = %q, want %d", got, len(test.want))
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("Warnings()[%d] = %q, want it to begin with %q", i, got[i], want)
				}
			}
		})
	}
}

func TestParse_LinesMayEndAsOnWindows(t *testing.T) {
	got := parse(t, strings.ReplaceAll(full, "\n", "\r\n"))
	if diff := cmp.Diff(parse(t, full), got, comparable); diff != "" {
		t.Errorf("Parse with CR LF (-with LF +with CR LF):\n%s", diff)
	}
}

func TestParse_RefusalsNameTheServiceAndKeepItsFaultsTogether(t *testing.T) {
	file, faults := config.Parse("f.yml", []byte(`services:
  - {name: good, checks: [port: {address: "127.0.0.1:80"}]}
  - {name: web, region: nowhere, checks: [http: {url: example.com/}]}
  - {checks: [port: {address: "127.0.0.1:80"}]}
`))
	if file == nil {
		t.Fatalf("Parse refused the whole file: %v", faults)
	}
	var got []string
	for _, r := range file.Refused {
		got = append(got, r.Service)
		for _, f := range r.Faults {
			got = append(got, f.Path)
		}
	}
	want := []string{"web", "services[1].region", "services[1].checks[0].http.url", "services[2]", "services[2].name"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Refused (-want +got):\n%s", diff)
	}
	if len(faults) != 3 {
		t.Errorf("Parse reported %d faults, want the 3 of the refused services", len(faults))
	}
}

func TestParse_BytesThatAreNoTextAreRefusedWithTheirLine(t *testing.T) {
	tests := map[string]struct {
		data []byte
		want string
	}{
		"empty":           {nil, "f.yml: is empty"},
		"a NUL byte":      {[]byte("a: b\nc: \x00\n"), "f.yml:2: contains a NUL byte; want UTF-8 text"},
		"UTF-16":          {[]byte("\xff\xfea\x00:\x00"), "f.yml:1: contains a NUL byte; want UTF-8 text"},
		"Latin-1":         {[]byte("a: b\n\n# caf\xe9\n"), "f.yml:3: is not UTF-8 text"},
		"CR line breaks":  {[]byte("a: b\n\rc: d\n"), "f.yml:2: has a line break that is neither LF nor CR LF, so that no two programs agree on its lines"},
		"a NEL":           {[]byte("a: b\u0085c: d\n"), "f.yml:1: has a line break that is neither LF nor CR LF, so that no two programs agree on its lines"},
		"more than 2 MiB": {bytes.Repeat([]byte("#\n"), config.MaxBytes/2+1), "f.yml: is larger than 2 MiB"},
		"nested too deep": {bytes.Repeat([]byte("["), 100_000), "f.yml:1: not YAML: exceeded max depth of 10000"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, faults := config.Parse("f.yml", test.data)
			if file != nil || len(faults) != 1 || faults[0].String() != test.want {
				t.Errorf("Parse = %v, %v, want the one fault %q", file, faults, test.want)
			}
		})
	}
}

func TestParse_FindsTheLineOfASyntaxErrorInALargeFile(t *testing.T) {
	line := "# comment\n"
	data := []byte(strings.Repeat(line, 999) + "data_dir: 'open\n" + strings.Repeat(line, 10_000))
	_, faults := config.Parse("f.yml", data)
	if len(faults) != 1 || faults[0].Line != 1000 {
		t.Errorf("Parse = %v, want one fault on line 1000", faults)
	}
}

func TestLoad_FilesThatCannotBeReadAreFaults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const service = "services: [{name: web, checks: [port: {address: '127.0.0.1:80'}]}]\n"
	large := write("large.yml", strings.Repeat("# comment\n", config.MaxBytes/10+1))
	lost := write("lost.yml", service+"alertmanager:\n  config_file: nowhere.yml\n")
	found := write("found.yml", service+"alertmanager:\n  config_file: large.yml\n")
	tests := map[string]struct{ path, want string }{
		"no such file":                    {filepath.Join(dir, "none.yml"), "none.yml: cannot be opened: no such file or directory"},
		"a folder":                        {dir, ": cannot be read: is a directory"},
		"larger than allowed":             {large, "large.yml: is larger than 2 MiB"},
		"an alertmanager file that is no": {lost, `lost.yml:3: alertmanager.config_file: "` + filepath.Join(dir, "nowhere.yml")},
		"an alertmanager file that is":    {found, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, faults := config.Load(test.path)
			switch {
			case test.want == "" && (file == nil || len(faults) > 0):
				t.Errorf("Load(%s) = %v, %v, want no fault", test.path, file, faults)
			case test.want != "" && (file != nil || len(faults) != 1 || !strings.Contains(faults[0].String(), test.want)):
				t.Errorf("Load(%s) = %v, %v, want one fault with %q", test.path, file, faults, test.want)
			}
		})
	}
}

// A file is refused, or it compiles to a policy the judge accepts: nothing in
// between, and no panic.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/mistakes/*.yml")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(full))
	f.Add([]byte("services: [{name: web, checks: [port: {address: 'unix:/run/a.sock'}, workers: {exe: /a, cmdline: '^a', workers_by: name, worker_name: b, min_workers: 2, config_files: ['*.conf'], netns: web}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, faults := config.Parse("/etc/f.yml", data)
		if file == nil && len(faults) == 0 {
			t.Fatal("Parse refused the file without a word")
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, fault := range faults {
			if fault.Line < 0 || fault.Line > lines || fault.Message == "" {
				t.Errorf("fault %q is on line %d of %d", fault, fault.Line, lines)
			}
			if strings.ContainsAny(fault.String(), "\n\x1b") {
				t.Errorf("fault %q breaks a terminal", fault)
			}
		}
		if file == nil {
			return
		}
		for _, r := range file.Refused {
			if len(r.Faults) == 0 {
				t.Errorf("service %q is refused without a fault", r.Service)
			}
		}
		compiled := config.Compile(file)
		if err := compiled.Policy.Validate(); err != nil {
			t.Errorf("Compile made a policy that is not valid: %v", err)
		}
		if err := (host.Config{Targets: compiled.Targets}).Validate(); err != nil {
			t.Errorf("Compile made targets that the host observer refuses: %v", err)
		}
		if got, want := len(compiled.Outside)+len(compiled.Inside), len(compiled.Policy.Services); got < want {
			t.Errorf("Compile made %d checks for %d services", got, want)
		}
		for _, s := range file.Services {
			for _, c := range s.Checks {
				if c.Interval < 100*time.Millisecond || c.HTTP != nil && c.Interval < c.HTTP.Timeout {
					t.Errorf("check %s/%s has the interval %s", s.Name, c.Name, c.Interval)
				}
			}
		}
		file.Warnings()
	})
}
