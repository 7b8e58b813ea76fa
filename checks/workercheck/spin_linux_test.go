package workercheck_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

const luaModules = "/usr/lib/nginx/modules/"

// luaNginx is a real nginx whose /spin never ends and whose /busy takes 20 ms of
// CPU.
func luaNginx(t *testing.T) (target host.Target, addr string) {
	t.Helper()
	if _, err := os.Stat(luaModules + "ngx_http_lua_module.so"); err != nil {
		skip(t, "nginx's Lua module is not installed (apt install libnginx-mod-http-lua)")
	}
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(freePort(t)))
	conf := "load_module " + luaModules + "ndk_http_module.so; load_module " + luaModules + "ngx_http_lua_module.so;\n" +
		"daemon off; worker_processes 2; pid " + dir + "/pid; error_log " + dir + "/e;\nevents {}\nhttp { access_log off;\n"
	for _, d := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += d + "_temp_path " + dir + "/" + d + ";\n"
	}
	conf += "server { listen " + at.String() + ";\n" +
		"location / { return 200 ok; }\n" +
		"location /spin { content_by_lua 'local function f() return f() end f()'; }\n" +
		"location /busy { content_by_lua 'local t = os.clock() + 0.02; while os.clock() < t do end ngx.say(\"ok\")'; } } }\n"
	os.WriteFile(dir+"/c", []byte(conf), 0o644)
	cmd := exec.Command("nginx", "-e", dir+"/e", "-c", dir+"/c")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kids, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/" + strconv.Itoa(cmd.Process.Pid) + "/children")
		for _, k := range strings.Fields(string(kids)) {
			if pid, err := strconv.Atoi(k); err == nil {
				syscall.Kill(pid, syscall.SIGKILL) // a spinning one hears nothing else
			}
		}
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	pidIn(t, dir+"/pid")
	return host.Target{PIDFile: dir + "/pid", Listeners: []netip.AddrPort{at}}, at.String()
}

func TestWorkers_OneThatSpinsIsToldFromOnesThatAreBusy(t *testing.T) {
	t.Parallel()
	target, addr := luaNginx(t)
	f := newFindings()
	watch(t, target, f.add)
	f.until(t, "2 of 2", serving(2))

	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /spin HTTP/1.0\r\n\r\n")
	at := time.Now()
	_, n := f.since(0)

	// The other is busy: eight clients, a new connection for each request.
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
					c.SetDeadline(time.Now().Add(time.Second))
					io.WriteString(c, "GET /busy HTTP/1.0\r\n\r\n")
					io.Copy(io.Discard, c)
					c.Close()
				}
			}
		})
	}
	got := f.untilWithin(t, 45*time.Second, "spinning", func(x checks.Finding) bool { return x.Workers.Spinning > 0 })
	close(stop)
	clients.Wait()
	t.Logf("suspected after %v: %s", time.Since(at), got.Detail)
	if got.Workers.Spinning != 1 || got.Workers.Serving != 2 || !got.Urgent || got.Reason != checks.ReasonWorkersStuck {
		t.Errorf("finding = %+v, %+v; want one spinning, 2 serving, urgent, workers_stuck", got, got.Workers)
	}
	all, _ := f.since(n)
	var most time.Duration
	for _, x := range all {
		for _, w := range x.Workers.Workers {
			if w.SpinFor > most && !spins(got, w.PID) {
				most = w.SpinFor
			}
		}
	}
	t.Logf("the busy one's longest window was %v", most)
	if most >= 5*time.Second {
		t.Errorf("a busy worker seemed to spin for %v", most)
	}
}

func spins(f checks.Finding, pid int) bool {
	for _, w := range f.Workers.Workers {
		if w.PID == pid {
			return w.SpinFor >= 15*time.Second
		}
	}
	return false
}
