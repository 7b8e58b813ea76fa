package workercheck_test

import (
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

func TestWorkers_ARealPoolOnDemandIsWellAtZero(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("php-fpm8.2"); err != nil {
		skip(t, "php-fpm is not installed")
	}
	dir, err := os.MkdirTemp("/tmp", "ondemand") // php-fpm's user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t)))
	os.WriteFile(dir+"/slow.php", []byte("<?php for ($i = 0; $i < 4; $i++) { usleep(500000); echo 'x'; flush(); }"), 0o644)
	os.WriteFile(dir+"/c", []byte("[global]\ndaemonize=no\nerror_log="+dir+"/e\npid="+dir+"/pid\n[www]\nuser=www-data\nlisten="+addr.String()+
		"\npm=ondemand\npm.max_children=3\npm.process_idle_timeout=2s\n"), 0o644)
	cmd := exec.Command("php-fpm8.2", "-y", dir+"/c", "-R", "-F")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endGroup(cmd) })
	pidIn(t, dir+"/pid")
	f := newFindings()
	watch(t, host.Target{PIDFile: dir + "/pid", Listeners: []netip.AddrPort{addr}}, f.add)
	pass := func(x checks.Finding) bool { return x.Outcome == checks.Pass }
	f.until(t, "main at zero", func(x checks.Finding) bool { return pass(x) && x.Workers.MainServes })
	wait := download(t, "php-fpm", dir, addr.String())
	f.until(t, "a worker", func(x checks.Finding) bool { return pass(x) && x.Workers.LivingWorkers > 0 && !x.Workers.MainServes })
	wait()
	f.until(t, "zero again", func(x checks.Finding) bool { return pass(x) && x.Workers.LivingWorkers == 0 && !x.Suspicious })
	got := f.until(t, "zero a second later", func(x checks.Finding) bool { return pass(x) && x.Workers.LivingWorkers == 0 })
	t.Logf("at zero: %s, on demand %t", got.Detail, got.Workers.OnDemand)
	f.noProof(t, 0)
}
