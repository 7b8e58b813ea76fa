package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBurner_NamesTheGroupThatUsedMost(t *testing.T) {
	v2, v1 := t.TempDir(), t.TempDir()
	put := func(root, group, file, format string, used time.Duration, unit time.Duration) {
		t.Helper()
		dir := filepath.Join(root, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), fmt.Appendf(nil, format, used/unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	unified := func(group string, used time.Duration) {
		put(v2, group, "cpu.stat", "usage_usec %d\nuser_usec 1\nsystem_usec 1\n", used, time.Microsecond)
	}
	cpuacct := func(group string, used time.Duration) {
		put(v1, group, "cpuacct.usage", "%d\n", used, time.Nanosecond)
	}
	pressed := HostState{CPUPressure: 0.9}
	for name, tt := range map[string]struct {
		before, after func()
		want          string
		share         float64
	}{
		"a service of a slice": {
			func() {
				unified("/", 100*time.Second)
				unified("system.slice", 0)
				unified("system.slice/a.service", 0)
			},
			func() {
				unified("/", 110*time.Second)
				unified("system.slice", 9*time.Second)
				unified("system.slice/a.service", 8*time.Second)
			}, "/system.slice/a.service", 0.8},
		"the slice, if none of it stands out": {
			func() {
				for _, g := range []string{"/", "x.slice", "x.slice/a", "x.slice/b", "x.slice/c"} {
					unified(g, 0)
				}
			},
			func() {
				unified("/", 10*time.Second)
				unified("x.slice", 9*time.Second)
				for _, g := range []string{"x.slice/a", "x.slice/b", "x.slice/c"} {
					unified(g, 3*time.Second)
				}
			}, "/x.slice", 0.9},
		"nobody, if the root itself burns": {
			func() { unified("/", 0); unified("a", 0) },
			func() { unified("/", 10*time.Second); unified("a", time.Second) }, "", 0},
		"nobody, if it was not there before": {
			func() { unified("/", 0) },
			func() { unified("/", 10*time.Second); unified("a", 9*time.Second) }, "", 0},
		"a container of v1, where v2 is empty": {
			func() { unified("/", 0); cpuacct("/", 0); cpuacct("docker", 0); cpuacct("docker/c", 0) },
			func() {
				unified("/", 10*time.Second)
				cpuacct("/", 10*time.Second)
				cpuacct("docker", 10*time.Second)
				cpuacct("docker/c", 10*time.Second)
			}, "/docker/c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, root := range []string{v2, v1} {
				if err := os.RemoveAll(root); err != nil {
					t.Fatal(err)
				}
			}
			now := time.Minute
			b := &burner{mounts: hierarchies{"": {v2, "/"}, "cpuacct": {v1, "/"}}, now: func() time.Duration { return now }}
			tt.before()
			if got, _ := b.name(pressed); got != "" {
				t.Errorf("after one reading: %q, want none", got)
			}
			tt.after()
			now += 10 * time.Second
			if got, share := b.name(pressed); got != tt.want || share != tt.share {
				t.Errorf("name() = %q, %v; want %q, %v", got, share, tt.want, tt.share)
			}
			if got, _ := b.name(HostState{CPUPressure: 0.01}); got != "" || b.used != nil {
				t.Errorf("without pressure: %q, %v; want nothing kept", got, b.used)
			}
		})
	}
}

func TestCgroups_OfARecordedSystem(t *testing.T) {
	for name, tt := range map[string]struct{ proc, known, unit string }{
		"v2 service":        {"0::/system.slice/nginx.service\n", "/system.slice/nginx.service", "/system.slice/nginx.service"},
		"a group below it":  {"0::/system.slice/docker-1.scope/init\n", "/system.slice/docker-1.scope/init", "/system.slice/docker-1.scope"},
		"user's service":    {"0::/user.slice/user-0.slice/user@0.service/app.slice/x.service\n", "/user.slice/user-0.slice/user@0.service/app.slice/x.service", "/user.slice/user-0.slice/user@0.service/app.slice/x.service"},
		"user's app slice":  {"0::/user.slice/user-0.slice/user@0.service/app.slice\n", "/user.slice/user-0.slice/user@0.service/app.slice", ""},
		"a login session":   {"0::/user.slice/user-0.slice/session-3.scope\n", "/user.slice/user-0.slice/session-3.scope", ""},
		"the root":          {"0::/\n", "/", ""},
		"a slice":           {"0::/system.slice\n", "/system.slice", ""},
		"hybrid":            {"4:memory:/process/x\n1:name=systemd:/system.slice/a.service\n0::/\n", "/system.slice/a.service", "/system.slice/a.service"},
		"container of v1":   {"9:name=systemd:/docker/abc\n2:cpu,cpuacct:/docker/abc\n", "/docker/abc", "/docker/abc"},
		"only cpuacct":      {"2:cpu,cpuacct:/lxc/abc\n0::/\n", "/lxc/abc", "/lxc/abc"},
		"outside our view":  {"0::/../../x\n", "", ""},
		"nothing":           {"", "", ""},
		"malformed":         {"0\n:\nx:y\n::\n", "", ""},
		"a colon in a name": {"0::/a:b\n", "/a:b", "/a:b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := parseCgroups([]byte(tt.proc))
			if got, unit := g.known(), unitOf(g); got != tt.known || unit != tt.unit {
				t.Errorf("known %q, unit %q; want %q, %q", got, unit, tt.known, tt.unit)
			}
		})
	}
}

func TestCgroupMounts(t *testing.T) {
	h := parseCgroupMounts([]byte(`41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /docker/abc /sys/fs/cgroup/with\040blank rw - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,name=systemd
36 31 0:32 / /tmp rw - tmpfs tmpfs rw
garbage
`))
	for _, tt := range []struct{ hierarchy, group, want string }{
		{"", "/a.slice", "/sys/fs/cgroup/unified/a.slice"},
		{"cpuacct", "/", "/sys/fs/cgroup/cpu,cpuacct"},
		{"cpu", "/x", "/sys/fs/cgroup/cpu,cpuacct/x"},
		{"memory", "/docker/abc/y", "/sys/fs/cgroup/with blank/y"},
		{"memory", "/docker/abc", "/sys/fs/cgroup/with blank"},
		{"memory", "/docker/abcd", ""},
		{"memory", "/", ""},
		{"name=systemd", "/z", "/sys/fs/cgroup/systemd/z"},
		{"freezer", "/z", ""},
		{"", "", ""},
	} {
		if got, ok := h.dir(tt.hierarchy, tt.group); got != tt.want || ok != (tt.want != "") {
			t.Errorf("dir(%q, %q) = %q, %t; want %q", tt.hierarchy, tt.group, got, ok, tt.want)
		}
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add([]byte("4:memory:/a\n0::/b.service\n"), []byte(`41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`), []byte("oom_kill 3\n"))
	f.Fuzz(func(t *testing.T, proc, mounts, file []byte) {
		g := parseCgroups(proc)
		for h, p := range g {
			if p == "" || p[0] != '/' {
				t.Errorf("group %q of %q, want an absolute path", p, h)
			}
			parseCgroupMounts(mounts).dir(h, p)
		}
		unitOf(g)
		keyed(file, "oom_kill")
		if used, ok := parseUsage(file); ok && used < 0 {
			t.Errorf("usage %v", used)
		}
	})
}
