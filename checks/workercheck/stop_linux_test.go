package workercheck_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/hosttest"
)

// slowApp answers /slow with a byte each half second for 5 s.
const slowApp = `import time
def app(e, start):
    start('200 OK', [('Content-Type', 'text/plain')])
    if e['PATH_INFO'] != '/slow':
        return [b'ok']
    def body():
        for i in range(10):
            time.sleep(0.5)
            yield b'x' * 100
    return body()
application = app
`

// stopper is a real server, and how it is asked to finish what it does and leave.
type stopper struct {
	start func(dir, addr string) *exec.Cmd
	stop  func(dir string, main int)
}

func send(s syscall.Signal) func(string, int) {
	return func(_ string, pid int) { syscall.Kill(pid, s) }
}

var stoppers = map[string]stopper{
	"nginx": {func(dir, addr string) *exec.Cmd {
		conf := "daemon off; worker_processes 3; pid " + dir + "/pid; error_log " + dir + "/e; events {} http { access_log off;\n"
		for _, d := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			conf += d + "_temp_path " + dir + "/" + d + ";\n"
		}
		os.WriteFile(dir+"/c", []byte(conf+"server { listen "+addr+"; root "+dir+"; } }"), 0o644)
		return exec.Command("nginx", "-e", dir+"/e", "-c", dir+"/c")
	}, send(syscall.SIGQUIT)},
	"gunicorn": {func(dir, addr string) *exec.Cmd {
		return exec.Command("gunicorn", "-w", "3", "-b", addr, "--chdir", dir, "--log-level", "critical", "app:app")
	}, send(syscall.SIGTERM)},
	"apache2": {func(dir, addr string) *exec.Cmd {
		os.WriteFile(dir+"/c", []byte("ServerRoot "+dir+"\nServerName it\nPidFile "+dir+"/pid\nListen "+addr+"\nErrorLog "+dir+"/e\nDocumentRoot "+dir+"\n"+
			"LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n"+
			"Mutex file:"+dir+"\nStartServers 3\nMinSpareServers 3\nMaxSpareServers 4\n"), 0o644)
		return exec.Command("apache2", "-f", dir+"/c", "-D", "FOREGROUND")
	}, send(syscall.SIGWINCH)},
	"uwsgi": {func(dir, addr string) *exec.Cmd {
		return exec.Command("uwsgi", "--plugins", "python3", "--http-socket", addr, "--master", "--processes", "3", "--wsgi-file", dir+"/app.py", "--master-fifo", dir+"/fifo", "--disable-logging")
	}, func(dir string, _ int) { os.WriteFile(dir+"/fifo", []byte("q"), 0) }},
	"haproxy": {func(dir, addr string) *exec.Cmd {
		behind, _ := os.ReadFile(dir + "/behind")
		os.WriteFile(dir+"/c", []byte("global\n nbthread 1\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n timeout connect 5s\n"+
			"listen f\n bind "+addr+"\n server s "+string(behind)+"\n"), 0o644)
		return exec.Command("haproxy", "-W", "-f", dir+"/c")
	}, send(syscall.SIGUSR1)},
	"php-fpm": {func(dir, addr string) *exec.Cmd {
		os.WriteFile(dir+"/slow.php", []byte("<?php for ($i = 0; $i < 10; $i++) { usleep(500000); echo 'x'; flush(); }"), 0o644)
		os.WriteFile(dir+"/c", []byte("[global]\ndaemonize=no\nerror_log="+dir+"/e\nprocess_control_timeout=20\n[www]\nuser=www-data\nlisten="+addr+"\npm=static\npm.max_children=3\n"), 0o644)
		return exec.Command("php-fpm8.2", "-y", dir+"/c", "-R", "-F")
	}, send(syscall.SIGQUIT)},
}

// run starts the server, with a watch that has seen all of its workers serve.
func (s stopper) run(t *testing.T, name string) (dir, addr string, main int, f *findings) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "stop") // php-fpm's user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	os.WriteFile(dir+"/app.py", []byte(slowApp), 0o644)
	os.WriteFile(dir+"/slow", nil, 0o644)
	os.Truncate(dir+"/slow", 64<<20)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t)))
	workers := 3
	if name == "haproxy" {
		workers = 1
		os.WriteFile(dir+"/behind", []byte(slowServer(t)), 0o644)
	}
	cmd := s.start(dir, at.String())
	if _, err := exec.LookPath(cmd.Path); err != nil {
		skip(t, cmd.Path+" is not installed")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endGroup(cmd) })
	os.WriteFile(dir+"/main.pid", []byte(fmt.Sprint(cmd.Process.Pid)), 0o644)
	f = newFindings()
	watch(t, host.Target{PIDFile: dir + "/main.pid", Listeners: []netip.AddrPort{at}}, f.add)
	f.until(t, "all", atLeast(workers))
	return dir, at.String(), cmd.Process.Pid, f
}

// endGroup kills a server that leads a process group, and waits for all of it: the
// orphans become ours (TestMain).
func endGroup(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Wait()
	for {
		if _, err := syscall.Wait4(-cmd.Process.Pid, nil, 0, nil); err != nil && err != syscall.EINTR {
			return
		}
	}
}

// atLeast is calm with n workers or more: apache forks a spare for our own
// connection.
func atLeast(n int) func(checks.Finding) bool {
	return func(x checks.Finding) bool {
		return x.Outcome == checks.Pass && x.Workers.Serving >= n && x.Workers.Expected >= n && !x.Suspicious
	}
}

// download begins a slow one and reads it, slowly, for 4 s or until it is over.
func download(t *testing.T, name, dir, addr string) (wait func() int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	request := "GET /slow HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n"
	if name == "php-fpm" {
		request = fastCGI(map[string]string{"SCRIPT_FILENAME": dir + "/slow.php", "REQUEST_METHOD": "GET"})
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		t.Fatalf("no slow download has begun: %v", err)
	}
	done := make(chan int, 1)
	go func() {
		defer c.Close()
		n, b := 0, make([]byte, 2048)
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			k, err := c.Read(b)
			if n += k; err != nil {
				break
			}
		}
		done <- n
	}()
	return func() int { return <-done }
}

// slowServer answers anything with a byte each half second for 5 s.
func slowServer(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
				for range 10 {
					time.Sleep(500 * time.Millisecond)
					io.WriteString(c, "x")
				}
			}()
		}
	}()
	return l.Addr().String()
}

// fastCGI is one request in that protocol (specification 1.0, sections 3.3 and 5).
func fastCGI(params map[string]string) string {
	record := func(kind byte, body []byte) []byte {
		return append([]byte{1, kind, 0, 1, byte(len(body) >> 8), byte(len(body)), 0, 0}, body...)
	}
	var p []byte
	for k, v := range params {
		p = append(append(append(p, byte(len(k)), byte(len(v))), k...), v...)
	}
	return string(bytes.Join([][]byte{record(1, []byte{0, 1, 0, 0, 0, 0, 0, 0}), record(4, p), record(4, nil), record(5, nil)}, nil))
}

func TestWorkers_AGracefulStopWithASlowDownloadIsSeenAsOne(t *testing.T) {
	t.Parallel()
	for name, server := range stoppers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, addr, main, f := server.run(t, name)
			time.Sleep(6 * time.Second) // a server is not stopped in the moment in which it was started
			wait := download(t, name, dir, addr)
			_, n := f.since(0)
			server.stop(dir, main)
			at := time.Now()
			got := f.until(t, "stopping", func(x checks.Finding) bool { return x.Workers.Stopping })
			t.Logf("stopping is seen after %v: %s", time.Since(at), got.Detail)
			if read := wait(); read == 0 {
				t.Errorf("the download was cut")
			}
			f.until(t, "main gone", func(x checks.Finding) bool { return x.Workers.Main.State == checks.ProcGone })
			all, _ := f.since(n)
			for _, x := range all {
				w := x.Workers
				if p := proof(x); p != "" && w.Main.State != checks.ProcGone && !w.Stopping {
					t.Errorf("%s while it stops: %s", p, x.Detail)
				}
				if w.Main.State == checks.ProcGone && !w.Stopping {
					t.Errorf("the end of main is not the end of a stop: %s", x.Detail)
					break
				}
			}
			if last := all[len(all)-1]; !strings.Contains(last.Detail, "exit 0") {
				t.Errorf("in the end %q, want exit 0", last.Detail)
			}
		})
	}
}

func TestWorkers_RealReloadsProveNothing(t *testing.T) {
	t.Parallel()
	for name, reload := range map[string]func(dir string, main int){
		"nginx": send(syscall.SIGHUP), "gunicorn": send(syscall.SIGHUP), "apache2": send(syscall.SIGUSR1),
		"uwsgi": send(syscall.SIGHUP), "php-fpm": send(syscall.SIGUSR2), "haproxy": send(syscall.SIGUSR2),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _, main, f := stoppers[name].run(t, name)
			time.Sleep(2 * time.Second) // so that the old ones are not the new ones' age
			_, n := f.since(0)
			reload(dir, main)
			f.until(t, "a new generation of workers", func(x checks.Finding) bool {
				for _, w := range x.Workers.Workers {
					if w.Serving && w.Age < 2*time.Second {
						return true
					}
				}
				return false
			})
			f.until(t, "calm", func(x checks.Finding) bool { return x.Outcome == checks.Pass && !x.Suspicious && !x.Workers.Stopping })
			f.noProof(t, n)
		})
	}
}

func TestWorkers_AListenerClosedWhileEverybodyLivesIsNoStop(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"main's": true, "the workers' own": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hosttest.Start(t, hosttest.Options{Workers: 2, Shared: shared, Respawn: 100 * time.Millisecond})
			f := newFindings()
			watch(t, host.Target{PIDFile: s.PIDFile, Listeners: []netip.AddrPort{s.Addr}}, f.add)
			f.until(t, "2 of 2", serving(2))
			time.Sleep(6 * time.Second) // as above
			_, n := f.since(0)
			s.Do("close")
			time.Sleep(4 * time.Second) // longer than the hold of a closed descriptor
			all, _ := f.since(n)
			for _, x := range all {
				if x.Workers.Stopping {
					t.Errorf("stopping: %s", x.Detail)
					break
				}
			}
		})
	}
}
