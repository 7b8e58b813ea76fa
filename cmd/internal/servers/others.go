//go:build linux

package servers

import (
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

const varnishVCL = `vcl 4.1;
backend default none;
sub vcl_recv { return (synth(200)); }
sub vcl_synth {
  set resp.http.Content-Type = "text/plain";
  set resp.body = "served" + {"
"};
  return (deliver);
}
`

// Varnish has a manager and one child, whose threads are its workers. Its
// reload is a new VCL; it cannot drain.
func varnish() Spec {
	return Spec{
		Name: "varnish", Package: "varnish gcc libc6-dev", Binary: "varnishd", Workers: 1,
		files:   func(Options) map[string]string { return map[string]string{"default.vcl": varnishVCL} },
		refresh: reloadVarnish,
		argv: func(o Options) []string {
			return []string{"-F", "-j", "none", "-n", o.path("varnish"), "-a", o.Addr.String(), "-f", o.path("default.vcl"),
				"-s", "malloc,16m", "-p", "thread_pools=1", "-p", "thread_pool_min=10"}
		},
	}
}

// reloadVarnish loads the VCL anew, under another name.
func reloadVarnish(s *Server) error {
	const name = "again"
	o := s.Options
	for _, words := range [][]string{{"vcl.load", name, o.path("default.vcl")}, {"vcl.use", name}} {
		out, err := exec.Command("varnishadm", append([]string{"-n", o.path("varnish")}, words...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("varnishadm %s: %w: %s", words[0], err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

const lighttpdConf = `server.document-root = "%[1]s/www"
server.bind = "%[2]s"
server.port = %[3]d
server.pid-file = "%[1]s/main.pid"
server.username = "www-data"
server.groupname = "www-data"
server.max-worker = 2
server.feature-flags = ( "server.graceful-shutdown-timeout" => 60 )
index-file.names = ( "index.html" )
mimetype.assign = ( "" => "text/plain" )
`

func lighttpd() Spec {
	return Spec{
		Name: "lighttpd", Package: "lighttpd", Binary: "lighttpd", Workers: 2,
		Reload: unix.SIGUSR1, Drain: unix.SIGINT, Downloads: true, ownPID: true,
		files: func(o Options) map[string]string {
			return map[string]string{"lighttpd.conf": fmt.Sprintf(lighttpdConf, o.Dir, o.Addr.Addr(), o.Addr.Port())}
		},
		argv: func(o Options) []string { return []string{"-D", "-f", o.path("lighttpd.conf")} },
	}
}
