package serverstatus_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// The real servers of Debian, each in a folder of its own on ports that were
// free, broken in the way that matters here: all workers frozen.

func TestHAProxy_MasterTellsOfWorkersOutOfBand(t *testing.T) {
	t.Parallel()
	dir, addr := folder(t), freeAddr(t)
	conf := write(t, dir, "conf", `defaults
  mode http
  timeout client 60s
  timeout server 5s
  timeout connect 1s
frontend web
  bind `+addr+`
  http-request return status 200
`)
	s := start(t, dir, "haproxy", "-W", "-S", dir+"/master", "-f", conf)
	src := must(t, "haproxy_master", dir+"/master")
	got := untilRead(t, src, "worker", func(s serverstatus.Status) bool { return len(s.Workers) == 1 && s.AcceptedKnown })
	if first := s.children()[0]; got.Workers[0].PID != first || !got.OutOfBand {
		t.Errorf("workers %+v, out of band %v; the worker is %d", got.Workers, got.OutOfBand, first)
	}
	connect(t, addr, 3)
	untilRead(t, src, "3 connections, our own questions not among them", func(s serverstatus.Status) bool {
		return s.Accepted == 3 && s.Workers[0].Requests == 3
	})

	held, err := net.Dial("tcp", addr) // keeps the old worker
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := s.main.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	got = untilRead(t, src, "old worker", func(s serverstatus.Status) bool { return len(s.Workers) == 2 })
	if !strings.Contains(got.Text, "1 worker ") || !strings.Contains(got.Text, "1 old, 0 reloads failed") {
		t.Errorf("after a reload: %q", got.Text)
	}

	write(t, dir, "conf", "frontend web\n  nonsense\n")
	if err := s.main.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	untilRead(t, src, "failed reload", func(s serverstatus.Status) bool { return strings.Contains(s.Text, "1 reload failed") })

	s.freeze(s.children()...)
	got = untilRead(t, src, "silent worker", func(s serverstatus.Status) bool { return strings.Contains(s.Text, "no answer through it from worker") })
	if got.AcceptedKnown {
		t.Error("accepted connections are known of a worker that did not answer")
	}
	s.freeze(s.main.Pid)
	if _, err := readOnce(t, src, 300*time.Millisecond); !errors.Is(err, serverstatus.ErrNoAnswer) {
		t.Errorf("a frozen master: %v, want ErrNoAnswer", err)
	}
}

func TestUWSGI_AThreadOfMainTells(t *testing.T) {
	t.Parallel()
	dir, addr := folder(t), freeAddr(t)
	app := write(t, dir, "app.py", "def application(env, start):\n    start('200 OK', [])\n    return [b'served']\n")
	s := start(t, dir, "uwsgi", "--plugin", "python3", "--http-socket", addr, "--master", "-p", "2", "--stats", dir+"/stats", "--wsgi-file", app)
	src := must(t, "uwsgi", dir+"/stats")
	got := untilRead(t, src, "2 idle workers", func(s serverstatus.Status) bool {
		return strings.Contains(s.Text, "2 workers (2 idle), 0 respawns, 0 connections waiting of ")
	})
	if !got.OutOfBand || got.AcceptedKnown || !got.QueueKnown {
		t.Errorf("%+v", got)
	}
	connect(t, addr, 3)
	untilRead(t, src, "3 requests", func(s serverstatus.Status) bool { return s.Workers[0].Requests+s.Workers[1].Requests == 3 })

	s.freeze(got.Workers[0].PID, got.Workers[1].PID)
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n") // it defers accept until bytes come
	}
	untilRead(t, src, "queue of 3 while all workers are frozen", func(s serverstatus.Status) bool { return s.Queue == 3 })
}

func TestPHPFPM_StatusOfAPoolAndOfItsOwnListener(t *testing.T) {
	t.Parallel()
	dir, addr := folder(t), freeAddr(t)
	conf := write(t, dir, "conf", `[global]
error_log=`+dir+`/error.log
daemonize=no
[www]
listen=`+addr+`
pm=static
pm.max_children=3
pm.status_path=/state
pm.status_listen=`+dir+`/status
user=www-data
group=www-data
`)
	s := start(t, dir, "php-fpm8.2", "-n", "-y", conf)
	inBand := must(t, "php_fpm", addr+"/state")
	got := untilRead(t, inBand, "3 workers that have started and rest", func(s serverstatus.Status) bool {
		return len(s.Workers) == 3 && count(s.Workers) == 0 && !slices.ContainsFunc(s.Workers, func(w serverstatus.Worker) bool { return w.PID == 0 })
	})
	if got.OutOfBand || !strings.Contains(got.Text, "pool www: 0 of 3 workers (static) busy, 0 connections waiting of ") {
		t.Errorf("in band: %+v", got)
	}
	own := must(t, "php_fpm", dir+"/status:/state")
	got = untilRead(t, own, "3 workers", func(s serverstatus.Status) bool { return len(s.Workers) == 3 })
	if !got.OutOfBand || !got.AcceptedKnown || got.Accepted == 0 {
		t.Errorf("its own listener: %+v", got)
	}
	if s, err := must(t, "php_fpm", addr+"/other").Read(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a path without a page: %+v, %v", s, err)
	}

	pool := make([]int, len(got.Workers))
	for i, w := range got.Workers {
		pool[i] = w.PID
	}
	s.freeze(pool...)
	wantNoAnswer(t, inBand)
	untilRead(t, own, "answer while all workers are frozen", func(s serverstatus.Status) bool { return s.OutOfBand && s.Queue > 0 })
}

func count(all []serverstatus.Worker) (busy int) {
	for _, w := range all {
		if w.Busy {
			busy++
		}
	}
	return busy
}

func TestApache_Scoreboard(t *testing.T) {
	for _, mpm := range []string{"prefork", "event"} {
		t.Run(mpm, func(t *testing.T) {
			t.Parallel()
			dir, addr := folder(t), freeAddr(t)
			conf := write(t, dir, "conf", `ServerRoot `+dir+`
PidFile `+dir+`/pid
Listen `+addr+`
LoadModule mpm_`+mpm+`_module /usr/lib/apache2/modules/mod_mpm_`+mpm+`.so
LoadModule status_module /usr/lib/apache2/modules/mod_status.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ServerName test
User www-data
Group www-data
StartServers 2
MaxRequestWorkers 50
ErrorLog `+dir+`/error.log
<Location /state>
  SetHandler server-status
</Location>
`)
			s := start(t, dir, "apache2", "-d", dir, "-f", conf, "-DFOREGROUND")
			src := must(t, "apache", "http://"+addr+"/state")
			got := untilRead(t, src, "idle slots", func(s serverstatus.Status) bool { return strings.Contains(s.Text, " idle") })
			if got.AcceptedKnown || got.OutOfBand || count(got.Workers) == 0 {
				t.Errorf("%+v", got)
			}
			s.freeze(s.main.Pid) // or it makes more of them
			s.freeze(s.children()...)
			wantNoAnswer(t, src)
		})
	}
}

func TestNginx_StubStatus(t *testing.T) {
	t.Parallel()
	dir, addr := folder(t), freeAddr(t)
	conf := write(t, dir, "conf", `daemon off; worker_processes 2; pid `+dir+`/pid; error_log `+dir+`/error.log;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path `+dir+`/body; proxy_temp_path `+dir+`/proxy; fastcgi_temp_path `+dir+`/fastcgi;
  uwsgi_temp_path `+dir+`/uwsgi; scgi_temp_path `+dir+`/scgi;
  server { listen `+addr+`; listen unix:`+dir+`/socket; location /state { stub_status; } location / { return 204; } }
}
`)
	s := start(t, dir, "nginx", "-e", dir+"/error.log", "-c", conf)
	src := must(t, "nginx", "http://unix:"+dir+"/socket:/state")
	before := untilRead(t, src, "page over a unix socket", func(s serverstatus.Status) bool { return s.AcceptedKnown })
	connect(t, addr, 3)
	src = must(t, "nginx", "http://"+addr+"/state")
	untilRead(t, src, "3 connections more, and our own", func(s serverstatus.Status) bool { return s.Accepted >= before.Accepted+4 })
	if s, err := must(t, "nginx", "http://"+addr+"/").Read(t.Context()); err == nil || !strings.Contains(err.Error(), "204") {
		t.Errorf("another page: %+v, %v", s, err)
	}
	s.freeze(s.children()...)
	wantNoAnswer(t, src)
}

// BenchmarkRead is for the README; it needs a place to ask:
//
//	SERVERSTATUS="nginx http://127.0.0.1:8080/stub_status" go test -bench Read ./checks/serverstatus
func BenchmarkRead(b *testing.B) {
	name, where, ok := strings.Cut(os.Getenv("SERVERSTATUS"), " ")
	if !ok {
		b.Skip("SERVERSTATUS names no server")
	}
	src, err := serverstatus.New(name, where)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := src.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
