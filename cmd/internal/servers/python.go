//go:build linux

package servers

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// wsgiApp is served by gunicorn and uwsgi.
const wsgiApp = `import time

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/spin":
        while True:
            pass
    if path == "/work":
        ends = time.process_time() + 0.02
        while time.process_time() < ends:
            pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/big":
        return (bytes(1 << 16) for _ in range(512))
    return [b"served\n"]
`

func gunicorn() Spec {
	return Spec{
		Name: "gunicorn", Package: "gunicorn", Binary: "gunicorn", Workers: 4,
		Reload: unix.SIGHUP, Drain: unix.SIGTERM, Recycles: true, Downloads: true, Spins: true, ownPID: true,
		files: func(Options) map[string]string { return map[string]string{"app.py": wsgiApp} },
		argv: func(o Options) []string {
			argv := []string{"--chdir", o.Dir, "--workers", "4", "--bind", o.Addr.String(), "--pid", o.PIDFile(),
				"--graceful-timeout", "60",
				// Its own cure for a worker that does not answer, after 30 s by default,
				// would end a fault before it is decided.
				"--timeout", "120"}
			if o.Recycle > 0 {
				argv = append(argv, "--max-requests", strconv.Itoa(o.Recycle))
			}
			return append(argv, "app:application")
		},
	}
}

func uwsgi() Spec {
	return Spec{
		Name: "uwsgi", Package: "uwsgi-core uwsgi-plugin-python3", Binary: "uwsgi-core", Workers: 4,
		Reload: unix.SIGHUP, Drain: unix.SIGTERM, Recycles: true, Downloads: true, Spins: true, ownPID: true,
		files: func(Options) map[string]string { return map[string]string{"app.py": wsgiApp} },
		argv: func(o Options) []string {
			argv := []string{"--plugin", "python3", "--master", "--workers", "4", "--http-socket", o.Addr.String(),
				"--wsgi-file", o.path("app.py"), "--need-app", "--pidfile", o.PIDFile(), "--disable-logging",
				"--uid", "www-data", "--gid", "www-data", "--worker-reload-mercy", "60",
				// SIGTERM drains; without the hook it reloads (uWSGI documentation, "Hooks").
				"--hook-master-start", "unix_signal:15 gracefully_kill_them_all"}
			if o.Recycle > 0 {
				// By default a worker lives for 60 s at least.
				argv = append(argv, "--max-requests", strconv.Itoa(o.Recycle), "--min-worker-lifetime", "1")
			}
			return argv
		},
	}
}
