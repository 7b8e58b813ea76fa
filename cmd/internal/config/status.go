package config

import (
	"strings"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// Status says where a server tells of itself; see serverstatus.New. The zero
// value: nowhere.
type Status struct {
	Server, Place string
}

// statusKeys has a key for each server that can be asked; exactly one is given.
func statusKeys() []key[Status] {
	about := map[string][2]string{
		"haproxy_master": {"host:port or path", "The master's socket (`haproxy -W -S PATH`). Out of band: not a worker answers."},
		"uwsgi":          {"host:port or path", "The statistics (`--stats`). Out of band."},
		"sozu":           {"path", "The command socket (`command_socket`) of Sōzu 1.0 or later. Out of band."},
		"php_fpm":        {"host:port or path", "The pool, with its status path behind it if that is not /status: `127.0.0.1:9000/state`, `/run/php.sock:/state`. Its pm.status_listen is out of band, its listener is not."},
		"apache":         {"URL", "mod_status's page. A worker answers: it shares the workers' fate."},
		"nginx":          {"URL", "The page of stub_status, over TCP or `http://unix:/SOCKET:/PATH`. A worker answers."},
	}
	var keys []key[Status]
	for _, server := range serverstatus.Servers() {
		keys = append(keys, key[Status]{server, false, about[server][0], "", about[server][1], func(r *reader, v value, s *Status) {
			place, ok := r.filled(v)
			if !ok {
				return
			}
			if _, err := serverstatus.New(server, place); err != nil {
				r.fault(v, "%s", err)
				return
			}
			*s = Status{server, place}
		}})
	}
	return keys
}

func readStatus(r *reader, v value, w *Workers) {
	before := len(r.faults)
	present := readMapping(r, v, statusKeys(), &w.Status)
	switch {
	case len(present) > 1:
		r.fault(v, "has %d keys; a server is asked in one way", len(present))
	case len(present) == 0 && len(r.faults) == before:
		r.fault(v, "needs one of %s", strings.Join(serverstatus.Servers(), ", "))
	}
}
