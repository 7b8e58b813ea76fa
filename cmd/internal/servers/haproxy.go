//go:build linux

package servers

import (
	"strings"

	"golang.org/x/sys/unix"
)

// One thread: a worker of one thread is what spins or hangs as a whole.
const haproxyConf = `global
  nbthread 1
  maxconn 256
  hard-stop-after 60s
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind ADDR
  http-request return status 200 content-type text/plain string "served\n" if !{ path /big }
  use_backend origin if { path /big }
backend origin
  server origin ORIGIN
`

func haproxy() Spec {
	return Spec{
		Name: "haproxy", Package: "haproxy", Binary: "haproxy", Workers: 1, Reuseport: true,
		Reload: unix.SIGUSR2, Drain: unix.SIGUSR1, Downloads: true,
		files: func(o Options) map[string]string {
			return map[string]string{"haproxy.cfg": strings.NewReplacer("ADDR", o.Addr.String(), "ORIGIN", o.Origin.String()).Replace(haproxyConf)}
		},
		argv: func(o Options) []string { return []string{"-W", "-f", o.path("haproxy.cfg")} },
	}
}
