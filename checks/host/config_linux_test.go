package host_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

func TestConfig_AFileNewerThanEveryWorkerIsNamedUntilOneIsYounger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.conf")
	write := func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: 10 * time.Millisecond})
	o := observe(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}, ConfigFiles: []string{dir + "/*.conf", dir + "/none"}})
	if got := until(t, o, "2 workers", healthy(2)); got.StaleConfig != "" {
		t.Errorf("stale %q, want none: it was there before", got.StaleConfig)
	}
	at := host.BootTime()
	write()
	got := until(t, o, "a stale file", func(s host.Snapshot) bool { return s.StaleConfig != "" })
	// File times come from a coarser clock (a tick of the kernel, 10 ms at most).
	if got.StaleConfig != file || got.StaleSince < at-20*time.Millisecond || got.StaleSince > got.At {
		t.Errorf("stale %q since %v, want %q since %v", got.StaleConfig, got.StaleSince, file, at)
	}
	s.Do("kill")
	until(t, o, "it loaded", func(s host.Snapshot) bool { return healthy(2)(s) && s.StaleConfig == "" })
}
