//go:build linux

package servers

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

const phpScript = `<?php
$path = $_SERVER["REQUEST_URI"];
if ($path === "/spin") { while (true); }
if ($path === "/sleep") { usleep(300000); }
if ($path === "/work") { $ends = hrtime(true) + 20000000; while (hrtime(true) < $ends); }
if (file_exists(__DIR__ . "/crash")) { posix_kill(getmypid(), 9); }
header("Content-Type: text/plain");
if ($path === "/big") { for ($i = 0; $i < 512; $i++) { echo str_repeat("\0", 65536); flush(); } exit; }
echo "served\n";
`

const fpmConf = `[global]
pid = %[1]s/main.pid
error_log = %[1]s/error.log
process_control_timeout = 60s
daemonize = no
[www]
user = www-data
group = www-data
listen = %[2]s
pm.max_children = 4
request_terminate_timeout = 0
php_admin_value[max_execution_time] = 0
php_admin_value[output_buffering] = 0
%[3]s`

func fpmStatic() Spec {
	return fpm("fpm-static", func(Options) string { return "pm = static\n" })
}

// An on-demand pool ends a worker that was idle for its time, down to none.
func fpmOndemand() Spec {
	s := fpm("fpm-ondemand", func(o Options) string {
		return fmt.Sprintf("pm = ondemand\npm.process_idle_timeout = %ds\n", cmp.Or(o.IdleTimeout, 60))
	})
	s.Elastic = true
	return s
}

func fpm(name string, pool func(Options) string) Spec {
	return Spec{
		Name: name, Package: "php8.2-fpm", Binary: "php-fpm8.2", Workers: 4, FastCGI: true,
		Reload: unix.SIGUSR2, Drain: unix.SIGQUIT, Recycles: true, Downloads: true, Spins: true, ownPID: true,
		files: func(o Options) map[string]string {
			own := pool(o)
			if o.Recycle > 0 {
				own += fmt.Sprintf("pm.max_requests = %d\n", o.Recycle)
			}
			return map[string]string{"fpm.conf": fmt.Sprintf(fpmConf, o.Dir, o.Addr, own), "www/index.php": phpScript}
		},
		argv: func(o Options) []string {
			return []string{"-n", "-d", "extension=posix", "-y", o.path("fpm.conf"), "-F"}
		},
	}
}
