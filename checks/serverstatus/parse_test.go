package serverstatus_test

import (
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// Answers recorded from Debian 12's servers on 2026-11-30, reduced.
var recorded = map[string]string{
	"haproxy procs": `#<PID>          <type>          <reloads>       <uptime>        <version>
26324           master          2 [failed: 1]   0d00h00m12s     2.6.12-1+deb12u4
# workers
26600           worker          0               0d00h00m01s     2.6.12-1+deb12u4
# old workers
26327           worker          2               0d00h00m12s     2.6.12-1+deb12u4
# programs

`,
	"haproxy frontends": "# pxname,svname,qcur,scur,req_tot,conn_tot,\nweb,FRONTEND,,2,7,5,\ntls,FRONTEND,,1,,11,\n\n",
	"http":              "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/plain\r\n\r\nbody",
	"nginx":             "Active connections: 2 \nserver accepts handled requests\n 120 118 130 \nReading: 0 Writing: 1 Waiting: 1 \n",
	"apache":            "127.0.0.1\nServerVersion: Apache/2.4.71 (Debian)\nTotal Accesses: 12\nBusyWorkers: 1\nIdleWorkers: 4\nScoreboard: __W__G...\n",
	"uwsgi": `{"version":"2.0.21-debian","listen_queue":0,"sockets":[{"name":"127.0.0.1:1","queue":3,"max_queue":100}],
"workers":[{"id":1,"pid":27532,"accepting":1,"requests":4,"status":"busy","respawn_count":3},{"id":2,"pid":0,"accepting":0,"requests":0,"status":"cheap","respawn_count":0}]}`,
	"fastcgi": "\x01\x06\x00\x01\x00\x10\x03\x00A: b\r\n\r\nthe body\x00\x00\x00\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"php-fpm": `{"pool":"www","process manager":"dynamic","accepted conn":9,"listen queue":1,"listen queue len":4096,"max children reached":2,
"processes":[{"pid":0,"state":"(null)","requests":0,"request uri":"-"},{"pid":1,"state":"Running","requests":4,"request uri":"\/slow.php"},{"pid":2,"state":"Running","requests":1,"request uri":"\/status?json&full&crosscheck=1"}]}`,
	"sozu": string(fakeSozuResponse(0, "fake, not recorded", fakeSozuWorker{0, 4711, 0})),
}

func TestParsers_TakeWhatWasRecorded(t *testing.T) {
	for name, parse := range serverstatus.Parsers {
		if err := parse([]byte(recorded[name])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParsers_RefuseWhatIsNone: an answer that ends too early, or another
// server's, is an error and no number.
func TestParsers_RefuseWhatIsNone(t *testing.T) {
	for name, parse := range serverstatus.Parsers {
		for other, answer := range recorded {
			if other != name && parse([]byte(answer)) == nil {
				t.Errorf("%s takes an answer of %s", name, other)
			}
		}
		for _, none := range []string{"", "\x00", "null", "{}", "HTTP/1.1 500 Broken\r\n\r\n", "Permission denied\n", strings.Repeat("\xff", 64)} {
			if parse([]byte(none)) == nil && !(name == "sozu" && none == "") {
				t.Errorf("%s takes %q", name, none)
			}
		}
	}
}

func TestHAProxy_Tables(t *testing.T) {
	p, err := serverstatus.ParseProcs([]byte(recorded["haproxy procs"]))
	if got, want := p.Sentence(), "haproxy master: 1 worker 26600, 1 old, 1 reload failed"; err != nil || got != want {
		t.Errorf("show proc = %q, %v, want %q", got, err, want)
	}
	before25 := "#<PID> <type> <relative PID> <reloads> <uptime> <version>\n7 master 0 0 0d00h00m01s 2.4\n# workers\n8 worker 1 0 0d00h00m01s 2.4\n9 worker 2 0 0d00h00m01s 2.4\n"
	p, err = serverstatus.ParseProcs([]byte(before25))
	if got, want := p.Sentence(), "haproxy master: 2 workers 8, 9, 0 old"; err != nil || got != want {
		t.Errorf("show proc of 2.4 = %q, %v, want %q", got, err, want)
	}
	f, err := serverstatus.ParseFrontends([]byte(recorded["haproxy frontends"]))
	if err != nil || f.Accepted() != 16 {
		t.Errorf("show stat: %d accepted, %v, want 16", f.Accepted(), err)
	}
}

func TestPHPFPM_Page(t *testing.T) {
	s, err := serverstatus.ParseFPM(recorded["php-fpm"], "/status?json&full&crosscheck=1")
	const want = "php-fpm pool www: 1 of 3 workers (dynamic) busy, 1 connection waiting of 4096, 9 accepted, limit of workers reached 2 times"
	if err != nil || s.Text != want || s.OutOfBand {
		t.Errorf("in band: %q, %v, out of band %v, want %q", s.Text, err, s.OutOfBand, want)
	}
	if s, err = serverstatus.ParseFPM(recorded["php-fpm"], "/status?json&full&crosscheck=2"); err != nil || !s.OutOfBand || !strings.Contains(s.Text, "2 of 3 workers") {
		t.Errorf("a question that no worker has: %q, %v, out of band %v", s.Text, err, s.OutOfBand)
	}
}

func TestUWSGIAndApacheAndNginx_Sentences(t *testing.T) {
	for _, c := range []struct {
		name  string
		parse func([]byte) (serverstatus.Status, error)
		want  string
	}{
		{"uwsgi", serverstatus.ParseUWSGI, "uwsgi: 2 workers (1 busy, 1 cheap), 2 respawns, 3 connections waiting of 100"},
		{"apache", serverstatus.ParseApache, "apache: 6 slots taken of 9, this question included: 4 idle, 1 sending, 1 finishing gracefully; 12 requests served"},
		{"nginx", serverstatus.ParseNginx, "nginx: 2 connections open (0 reading, 1 writing, 1 waiting), 120 accepted, 2 of them dropped"},
	} {
		if s, err := c.parse([]byte(recorded[c.name])); err != nil || s.Text != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, s.Text, err, c.want)
		}
	}
}

func TestNew_SaysWhatIsWrongWithAPlace(t *testing.T) {
	for _, c := range []struct{ server, place, want string }{
		{"haproxy_master", "/run/haproxy-master.sock", ""},
		{"haproxy_master", "127.0.0.1:9999", ""},
		{"haproxy_master", "run/haproxy-master.sock", "neither HOST:PORT nor the absolute path of a unix socket"},
		{"sozu", "127.0.0.1:4", "not the absolute path of a unix socket"},
		{"uwsgi", "127.0.0.1:9191", ""},
		{"uwsgi", "/run/stats", ""},
		{"uwsgi", "9191", "neither HOST:PORT nor"},
		{"uwsgi", ":9191", "neither HOST:PORT nor"},
		{"php_fpm", "127.0.0.1:9000", ""},
		{"php_fpm", "[::1]:9000/state", ""},
		{"php_fpm", "/run/php.sock:/state", ""},
		{"php_fpm", "127.0.0.1:0", "neither HOST:PORT nor"},
		{"php_fpm", "", "neither HOST:PORT nor"},
		{"apache", "http://127.0.0.1/server-status?auto", ""},
		{"nginx", "http://unix:/run/nginx.sock:/stub_status", ""},
		{"nginx", "http://unix:run/nginx.sock:/stub_status", "not the absolute path of a unix socket"},
		{"nginx", "https://127.0.0.1/stub_status", "neither http://HOST:PORT/PATH nor"},
		{"nginx", "http://admin:secret@127.0.0.1/stub_status", "user info is not sent"},
		{"nginx", "https://admin:secret@127.0.0.1/stub_status", "user info is not sent"},
		{"nginx", "http://admin:secret@%zz", "is not a URL"},
		{"caddy", "http://127.0.0.1", "is not one of haproxy_master, uwsgi"},
	} {
		_, err := serverstatus.New(c.server, c.place)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%q, %q) = %v, want %q", c.server, c.place, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q, ...) tells the password: %v", c.server, err)
		}
	}
}

func TestServers_AllExist(t *testing.T) {
	for _, name := range serverstatus.Servers() {
		if _, err := serverstatus.New(name, "nowhere"); err == nil || strings.Contains(err.Error(), "is not one of") {
			t.Errorf("New(%q, nowhere) = %v", name, err)
		}
	}
}

// TestRead_ErrorsNameServerAndAddress for what is not there at all.
func TestRead_ErrorsNameServerAndAddress(t *testing.T) {
	nowhere := folder(t) + "/socket"
	for name, place := range map[string]string{"haproxy_master": nowhere, "uwsgi": nowhere, "sozu": nowhere, "php_fpm": nowhere,
		"apache": "http://unix:" + nowhere + ":/", "nginx": "http://unix:" + nowhere + ":/"} {
		_, err := must(t, name, place).Read(t.Context())
		if err == nil || strings.Count(err.Error(), nowhere) != 1 || !strings.HasPrefix(err.Error(), "ask ") {
			t.Errorf("%s: %v, want its address once", name, err)
		}
	}
}

func TestWord_IsPrintableAndShort(t *testing.T) {
	for in, want := range map[string]string{"idle": "idle", "a\x1b[31m\nb": "a?[31m?b", strings.Repeat("x", 40): strings.Repeat("x", 32), "é": "?"} {
		if got := serverstatus.Word(in); got != want {
			t.Errorf("word(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzParsers: no answer makes a parser panic. One target for all, so that each
// is given what the others take.
func FuzzParsers(f *testing.F) {
	for _, answer := range recorded {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, parse := range serverstatus.Parsers {
			_ = parse(answer)
		}
	})
}
