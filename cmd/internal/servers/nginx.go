//go:build linux

package servers

import (
	"strings"

	"golang.org/x/sys/unix"
)

// The endless tail call is the one of the outage of 2024-06-20: a loop in Lua,
// run by an nginx worker, that never yields.
const nginxConf = `daemon DAEMON;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
user www-data;
worker_processes 4;
pid DIR/main.pid;
error_log DIR/error.log;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path DIR/body;
  proxy_temp_path DIR/proxy;
  fastcgi_temp_path DIR/fastcgi;
  uwsgi_temp_path DIR/uwsgi;
  scgi_temp_path DIR/scgi;
  server {
    listen ADDRREUSEPORT;
    root DIR/www;
    location = / { return 200 "served\n"; }
    location = /work { content_by_lua_block {
      local ends = os.clock() + 0.02
      while os.clock() < ends do end
      ngx.say("served")
    } }
    location = /spin { content_by_lua_block {
      local function f() return f() end
      f()
    } }
  }
}
`

func nginx() Spec {
	return Spec{
		Name: "nginx", Package: "nginx-light libnginx-mod-http-lua", Binary: "nginx", Workers: 4,
		Reload: unix.SIGHUP, Drain: unix.SIGQUIT, Upgrades: true, Downloads: true, Spins: true, ownPID: true,
		files: func(o Options) map[string]string { return map[string]string{"nginx.conf": nginxConfig(o, "")} },
		argv: func(o Options) []string {
			return []string{"-p", o.Dir, "-c", o.path("nginx.conf"), "-e", o.path("error.log")}
		},
	}
}

func nginxReuseport() Spec {
	s := nginx()
	s.Name, s.Reuseport = "nginx-reuseport", true
	s.files = func(o Options) map[string]string {
		return map[string]string{"nginx.conf": nginxConfig(o, " reuseport")}
	}
	return s
}

func nginxConfig(o Options, reuseport string) string {
	daemon := "off"
	if o.Daemon {
		daemon = "on"
	}
	return strings.NewReplacer("DAEMON", daemon, "DIR", o.Dir, "ADDR", o.Addr.String(), "REUSEPORT", reuseport).Replace(nginxConf)
}
