//go:build linux

package servers

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const apacheConf = `ServerName localhost
ServerRoot %[1]s
DefaultRuntimeDir %[1]s
PidFile %[1]s/main.pid
ErrorLog %[1]s/error.log
Listen %[2]s
LoadModule mpm_%[3]s_module /usr/lib/apache2/modules/mod_mpm_%[3]s.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
User www-data
Group www-data
DocumentRoot %[1]s/www
DirectoryIndex index.html
<Directory %[1]s/www>
  Require all granted
</Directory>
LuaMapHandler ^/(spin|work)$ %[1]s/handler.lua $1
%[4]s`

const apacheLua = `require "apache2"
function spin(r) while true do end end
function work(r)
  local ends = os.clock() + 0.02
  while os.clock() < ends do end
  r:puts("served\n")
  return apache2.OK
end
`

// The pools are pinned to their size: a pool with spare room forks more when
// some are frozen and so heals by itself (reference, F8), and one that wants
// fewer spares than it has does not replace who dies.
func apachePrefork() Spec {
	return apache("prefork", 4, "StartServers 4\nMinSpareServers 4\nMaxSpareServers 8\nServerLimit 4\nMaxRequestWorkers 4\n")
}

func apacheEvent() Spec {
	return apache("event", 2, "StartServers 2\nServerLimit 2\nThreadsPerChild 4\nMinSpareThreads 8\nMaxSpareThreads 16\nMaxRequestWorkers 8\n")
}

func apache(mpm string, workers int, pool string) Spec {
	return Spec{
		Name: "apache-" + mpm, Package: "apache2-bin", Binary: "apache2", Workers: workers,
		Reload: unix.SIGUSR1, Drain: unix.SIGWINCH, Recycles: true, Downloads: true, Spins: true, ownPID: true,
		files: func(o Options) map[string]string {
			own := pool
			if o.Recycle > 0 {
				own += fmt.Sprintf("MaxConnectionsPerChild %d\n", o.Recycle)
			}
			return map[string]string{"apache.conf": fmt.Sprintf(apacheConf, o.Dir, o.Addr, mpm, own), "handler.lua": apacheLua}
		},
		argv: func(o Options) []string { return []string{"-f", o.path("apache.conf"), "-DFOREGROUND"} },
	}
}
