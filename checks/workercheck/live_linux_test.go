package workercheck_test

import (
	"context"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

func TestMain(m *testing.M) {
	hosttest.Main()
	// Daemons that leave their parent become our children, so that we can wait
	// for them: not every container has an init that does.
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// These tests wait; they do not compute. Two at a time would take a minute.
	flag.Parse()
	flag.Set("test.parallel", "16")
	os.Exit(m.Run())
}

// watch runs an observer with a workers check and hands each finding to see,
// as a vantage would: on each change and each second, until the test ends.
func watch(t *testing.T, target host.Target, see func(checks.Finding)) {
	t.Helper()
	target.Name = "it"
	o, err := host.New(host.Config{Targets: []host.Target{target}}, host.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	c := workercheck.New(workercheck.Config{Target: "it"}, o, deps(o))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := o.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	wg.Go(func() {
		slot := time.NewTicker(time.Second)
		defer slot.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.Changed():
			case <-slot.C:
			}
			see(c.Look(ctx))
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// deps is how a check of o's target connects, as the agent does.
func deps(o *host.Observer) workercheck.Deps {
	return workercheck.Deps{Local: local.Deps{Accepted: func(client, server netip.AddrPort) (accepted, known bool) {
		return o.Accepted("it", client, server)
	}}}
}

// findings collects and can be waited on.
type findings struct {
	mu   sync.Mutex
	all  []checks.Finding
	more chan struct{}
}

func newFindings() *findings { return &findings{more: make(chan struct{}, 1)} }

func (f *findings) add(x checks.Finding) {
	f.mu.Lock()
	f.all = append(f.all, x)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// since returns the findings from index n on, and the next index.
func (f *findings) since(n int) ([]checks.Finding, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[n:len(f.all):len(f.all)], len(f.all)
}

func (f *findings) until(t *testing.T, what string, ok func(checks.Finding) bool) checks.Finding {
	t.Helper()
	return f.untilWithin(t, 15*time.Second, what, ok)
}

func (f *findings) untilWithin(t *testing.T, limit time.Duration, what string, ok func(checks.Finding) bool) checks.Finding {
	t.Helper()
	deadline := time.After(limit)
	_, n := f.since(0)
	var last checks.Finding
	for {
		var fresh []checks.Finding
		fresh, n = f.since(n)
		for _, x := range fresh {
			if last = x; ok(x) {
				return x
			}
		}
		select {
		case <-f.more:
		case <-deadline:
			t.Fatalf("no finding with %s within %v; last: %+v workers %+v", what, limit, last, last.Workers)
		}
	}
}

func serving(n int) func(checks.Finding) bool {
	return func(f checks.Finding) bool {
		return f.Outcome == checks.Pass && f.Workers.Serving == n && f.Workers.Expected == n
	}
}

// proof is the judge's decision on the finding alone: "RULE CAUSE", or none. The
// judge is told that the generation has served, as it may remember.
func proof(f checks.Finding) string {
	if f.Workers == nil {
		return ""
	}
	p, ok := correlate.ProveWorkers(f.Workers, true)
	if !ok {
		return ""
	}
	return p.Rule + " " + string(p.Cause)
}

func p1(f checks.Finding) bool { return proof(f) == "P1 workers_crash_looping" }

// noProof fails the test for each finding since n that proves something.
func (f *findings) noProof(t *testing.T, n int) {
	t.Helper()
	fresh, _ := f.since(n)
	for _, x := range fresh {
		if got := proof(x); got != "" {
			t.Errorf("%s: %s, want no proof; %+v", got, x.Detail, x.Workers)
			return // those that follow say the same
		}
	}
}

func TestWorkers_ACrashLoopIsDecidableQuickly(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"shared": true, "reuseport": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hosttest.Start(t, hosttest.Options{Workers: 4, Shared: shared, Respawn: 100 * time.Millisecond})
			f := newFindings()
			watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
			f.until(t, "4 of 4", serving(4))
			at := s.Do("crash on")
			got := f.until(t, "P1", p1)
			t.Logf("P1 after %v: %s; chain %d over %v, respawn %v", time.Since(at), got.Detail, got.Workers.Chain, got.Workers.ChainFor, got.Workers.Respawn)
			if !got.Urgent || !got.Suspicious || got.Outcome != checks.Fail || got.Reason != checks.ReasonNoServingWorker {
				t.Errorf("finding = %+v, want an urgent, suspicious fail", got)
			}
			s.Do("crash off")
			got = f.until(t, "recovery", serving(4))
			if got.Workers.Chain != 0 || got.Workers.Died != 0 {
				t.Errorf("after recovery chain = %d, died = %d, want 0, 0", got.Workers.Chain, got.Workers.Died)
			}
			f.until(t, "calm", func(x checks.Finding) bool { return !x.Suspicious })
		})
	}
}

func TestWorkers_OneKillOfAllProvesNothing(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 4, Shared: true, Respawn: 100 * time.Millisecond})
	f := newFindings()
	watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
	f.until(t, "4 of 4", serving(4))
	_, n := f.since(0)
	s.Do("kill")
	f.until(t, "nobody serving", func(x checks.Finding) bool { return x.Workers.Serving == 0 })
	f.until(t, "recovery", serving(4))
	fresh, _ := f.since(n)
	for _, x := range fresh {
		if x.Workers.Chain != 0 {
			t.Errorf("chain %d, %+v after one kill, want chain 0", x.Workers.Chain, x.Workers)
		}
	}
	f.noProof(t, n)
}

func TestWorkers_StoppedWorkersDoNotServe(t *testing.T) {
	t.Parallel()
	s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: true, Respawn: 100 * time.Millisecond})
	f := newFindings()
	watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
	f.until(t, "2 of 2", serving(2))
	s.Do("stop")
	got := f.until(t, "an unanswered local look", func(x checks.Finding) bool { return x.Workers.Local == checks.LocalUnanswered })
	if got.Outcome != checks.Fail || got.Workers.LivingWorkers != 2 || got.Workers.Expected != 2 {
		t.Errorf("finding = %+v %+v, want fail, 2 living, 2 expected", got, got.Workers)
	}
	s.Do("cont")
	f.until(t, "2 of 2 again", serving(2))
}

func TestWorkers_ALoneServerThatRunsPrograms(t *testing.T) {
	t.Parallel()
	s := hosttest.StartLone(t, 50*time.Millisecond)
	f := newFindings()
	watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
	f.until(t, "main serving by itself", func(x checks.Finding) bool { return x.Workers != nil && x.Workers.MainServes })
	_, n := f.since(0)
	time.Sleep(4 * time.Second) // the length of the story: eighty programs fail
	f.noProof(t, 0)
	fresh, _ := f.since(n)
	for _, x := range fresh {
		if x.Outcome != checks.Pass || x.Suspicious && x.Workers.Serving == 0 {
			t.Errorf("finding = %s %q, want pass", x.Outcome, x.Detail)
		}
	}
	at := time.Now()
	syscall.Kill(s.PID, syscall.SIGSTOP)
	f.until(t, "main frozen", func(x checks.Finding) bool { return proof(x) == "P1d main_frozen" })
	t.Logf("main frozen after %v", time.Since(at))
	syscall.Kill(s.PID, syscall.SIGCONT)
	f.until(t, "main serving again", func(x checks.Finding) bool { return x.Workers.MainServes })
}

// skip skips, or fails where skipping is forbidden.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CROSSCHECK_NO_SKIP") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// nginx starts a real one and returns its target. It upgrades itself only if it
// has left its parent (daemon).
func nginx(t *testing.T, workers int, daemon string) (host.Target, func(args ...string)) {
	t.Helper()
	exe, err := exec.LookPath("nginx")
	if err != nil {
		if _, err = os.Stat("/usr/sbin/nginx"); err != nil {
			skip(t, "nginx is not installed (apt install nginx-light)")
		}
		exe = "/usr/sbin/nginx"
	}
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	port := freePort(t)
	conf := "daemon " + daemon + "; master_process on; worker_processes " + strconv.Itoa(workers) + ";\npid " + dir + "/nginx.pid; error_log " + dir + "/error.log;\n" +
		"events { worker_connections 64; }\nhttp { access_log off;\n"
	for _, d := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += d + "_temp_path " + dir + "/" + d + ";\n"
	}
	conf += "proxy_cache_path " + dir + "/cache keys_zone=z:1m;\nserver { listen 127.0.0.1:" + strconv.Itoa(port) + "; location / { return 200 ok; } } }\n"
	if err := os.WriteFile(dir+"/nginx.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(exe, append([]string{"-e", dir + "/error.log", "-c", dir + "/nginx.conf"}, args...)...)
		cmd.Stderr = os.Stderr
		return cmd
	}
	main := run()
	if err := main.Start(); err != nil {
		t.Fatal(err)
	}
	if daemon == "on" {
		if err := main.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			pid := pidIn(t, dir+"/nginx.pid")
			run("-s", "stop").Run()
			syscall.Wait4(pid, nil, 0, nil)
		})
	} else {
		t.Cleanup(func() { main.Process.Signal(syscall.SIGTERM); main.Wait() })
	}
	return host.Target{PIDFile: filepath.Join(dir, "nginx.pid"), Listeners: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))}},
		func(args ...string) {
			if err := run(args...).Run(); err != nil {
				t.Errorf("nginx %v: %v", args, err)
			}
		}
}

// pidIn waits for a pid file and reads it.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if pid, _ := strconv.Atoi(strings.TrimSpace(string(b))); pid > 0 {
			return pid
		}
		if time.Now().After(deadline) {
			t.Fatalf("no pid in %s: %v", path, err)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return sa.(*syscall.SockaddrInet4).Port
}

// killWorkers kills the workers of an nginx that are named so, until stop closes.
func killWorkers(pidFile string, stop <-chan struct{}) {
	b, _ := os.ReadFile(pidFile)
	pid := strings.TrimSpace(string(b))
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		kids, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		for _, k := range strings.Fields(string(kids)) {
			title, _ := os.ReadFile("/proc/" + k + "/cmdline")
			if n, err := strconv.Atoi(k); err == nil && !strings.Contains(string(title), "cache") {
				syscall.Kill(n, syscall.SIGKILL)
			}
		}
		select {
		case <-stop: // also if a tick is there as well
			return
		default:
		}
		<-every.C
	}
}

func TestWorkers_RealNginxInAKillLoopReloadAndKillOnce(t *testing.T) {
	t.Parallel()
	target, cli := nginx(t, 4, "off")
	f := newFindings()
	watch(t, target, f.add)
	f.until(t, "4 of 4", serving(4))

	_, n := f.since(0)
	cli("-s", "reload")
	f.until(t, "calm after the reload", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious })
	stop := make(chan struct{})
	close(stop)
	killWorkers(target.PIDFile, stop) // once
	f.until(t, "an exit", func(x checks.Finding) bool { return x.Suspicious })
	f.until(t, "calm after one kill", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious })
	fresh, _ := f.since(n)
	for _, x := range fresh {
		if x.Workers.Chain > 0 {
			t.Errorf("%s: %+v, want no chain from a reload and one kill", x.Detail, x.Workers)
			break
		}
	}
	f.noProof(t, n)

	stop = make(chan struct{})
	var wg sync.WaitGroup
	at := time.Now()
	wg.Go(func() { killWorkers(target.PIDFile, stop) })
	got := f.until(t, "P1", p1)
	t.Logf("P1 after %v: %s; chain %d over %v, respawn %v", time.Since(at), got.Detail, got.Workers.Chain, got.Workers.ChainFor, got.Workers.Respawn)
	close(stop)
	wg.Wait()
	f.until(t, "recovery", serving(4))
}

func TestWorkers_RealNginxReloadedEverySecondAndUpgraded(t *testing.T) {
	t.Parallel()
	target, cli := nginx(t, 4, "on")
	old := pidIn(t, target.PIDFile)
	f := newFindings()
	watch(t, host.Target{Port: target.Listeners[0]}, f.add)
	f.until(t, "4 of 4", serving(4))
	for range 7 {
		cli("-s", "reload")
		time.Sleep(850 * time.Millisecond) // the story's own pace
	}
	f.until(t, "calm after the reloads", func(x checks.Finding) bool { return serving(4)(x) && !x.Suspicious })
	f.noProof(t, 0)

	syscall.Kill(old, syscall.SIGUSR2)
	pidIn(t, target.PIDFile+".oldbin") // the new main is started
	syscall.Kill(old, syscall.SIGWINCH)
	time.Sleep(4 * time.Second) // longer than any window
	f.noProof(t, 0)
	syscall.Kill(old, syscall.SIGQUIT)
	syscall.Wait4(old, nil, 0, nil)
	f.until(t, "4 of 4 under the new main", func(x checks.Finding) bool { return serving(4)(x) && x.Workers.Main.PID != old })
	f.noProof(t, 0)
}

// Masters that pace themselves serve nobody for a second or two after their
// workers were killed once.
func TestWorkers_RealPacedMastersKilledOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(dir, addr, pidFile string) *exec.Cmd{
		"gunicorn": func(dir, addr, pidFile string) *exec.Cmd {
			os.WriteFile(dir+"/app.py", []byte("import time\ntime.sleep(0.5)\ndef app(e, start):\n    start('200 OK', [])\n    return [b'ok']\n"), 0o644)
			return exec.Command("gunicorn", "-w", "3", "-b", addr, "-p", pidFile, "--chdir", dir, "--log-level", "critical", "app:app")
		},
		"apache2": func(dir, addr, pidFile string) *exec.Cmd {
			conf := "ServerRoot " + dir + "\nServerName it\nPidFile " + pidFile + "\nListen " + addr + "\nErrorLog " + dir + "/error.log\nDocumentRoot " + dir + "\n" +
				"LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n" +
				"Mutex file:" + dir + "\nStartServers 3\nMinSpareServers 3\nMaxSpareServers 3\n"
			os.WriteFile(dir+"/apache.conf", []byte(conf), 0o644)
			return exec.Command("apache2", "-f", dir+"/apache.conf", "-D", "FOREGROUND")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				skip(t, name+" is not installed")
			}
			dir := t.TempDir()
			addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t)))
			cmd := start(dir, addr.String(), dir+"/pid")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // apache ends its whole process group
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
			pidIn(t, dir+"/pid")
			f := newFindings()
			watch(t, host.Target{PIDFile: dir + "/pid", Listeners: []netip.AddrPort{addr}}, f.add)
			f.until(t, "3 or more", atLeast(3))
			stop := make(chan struct{})
			close(stop)
			_, n := f.since(0)
			killWorkers(dir+"/pid", stop)
			f.until(t, "an exit", func(x checks.Finding) bool { return x.Suspicious })
			got := f.until(t, "calm again", func(x checks.Finding) bool { return x.Outcome == checks.Pass && !x.Suspicious })
			t.Logf("respawn %v, %s", got.Workers.Respawn, got.Detail)
			f.noProof(t, n)
			stop = make(chan struct{})
			var wg sync.WaitGroup
			at := time.Now()
			wg.Go(func() { killWorkers(dir+"/pid", stop) })
			got = f.until(t, "a proof", func(x checks.Finding) bool { return proof(x) != "" })
			t.Logf("%s after %v: %s", proof(got), time.Since(at), got.Detail)
			close(stop)
			wg.Wait()
		})
	}
}
