package config

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
)

// maxEvery is the longest interval between heartbeats: a month, for what runs
// once a month.
const maxEvery = 31 * 24 * time.Hour

func readHeartbeat(r *reader, v value, c *Check) {
	c.Heartbeat = &heartbeat.Config{}
	present := readMapping(r, v, heartbeatKeys(), c.Heartbeat)
	if _, given := present["grace"]; !given {
		c.Heartbeat.Grace = c.Heartbeat.Every / 2
	}
	if at, counted := present["worker_count"]; counted && len(c.Heartbeat.Workers) > 0 {
		r.fault(at, "the workers are named already; their names are counted")
	} else if counted && c.Heartbeat.Socket == "" {
		r.fault(at, "workers are counted by their process ids, which only a socket tells; give it socket, or name the workers")
	}
}

func heartbeatKeys() []key[heartbeat.Config] {
	type config = heartbeat.Config
	return []key[config]{
		{"every", true, "duration", "", "How often the workload says that it lives; 1s to 744h. It sends `POST /heartbeat/SERVICE/CHECK` to `listen`, or a message to `socket`.",
			into(between(time.Second, maxEvery), func(c *config) *time.Duration { return &c.Every })},
		{"grace", false, "duration", "half of `every`", "How much later than that it may speak before its silence is a fault; 0s to 744h.",
			into(between(0, maxEvery), func(c *config) *time.Duration { return &c.Grace })},
		{"socket", false, "path", "", "A unix datagram socket to make, for programs that speak sd_notify: they are started with `NOTIFY_SOCKET` set to it. `@name` is one in the abstract namespace.",
			into((*reader).notifySocket, func(c *config) *string { return &c.Socket })},
		{"workers", false, "list of names", "", "Workers that each say that they live, by name: `POST /heartbeat/SERVICE/CHECK/WORKER`, or a line `X_CROSSCHECK_WORKER=WORKER` in the message.",
			readHeartbeatWorkers},
		{"worker_count", false, "number", "", "So many workers that each say that they live, told apart by their process ids; instead of `workers`.",
			func(r *reader, v value, c *config) {
				n, ok := r.count(v)
				switch {
				case ok && n > heartbeat.WorkersMost:
					r.fault(v, "%d is too many; want at most %d", n, heartbeat.WorkersMost)
				case ok:
					c.Count = int(n)
				}
			}},
	}
}

func readHeartbeatWorkers(r *reader, v value, c *heartbeat.Config) {
	lines := map[string]int{}
	items := r.items(v, "names")
	if len(items) > heartbeat.WorkersMost {
		r.fault(v, "%d workers are too many; want at most %d", len(items), heartbeat.WorkersMost)
		return
	}
	for _, item := range items {
		if name, ok := r.name(item); ok {
			r.unique(item, name, lines, "worker")
			c.Workers = append(c.Workers, name)
		}
	}
}

// notifySocket reads the path of a socket to make, or its abstract name.
func (r *reader) notifySocket(v value) (string, bool) {
	s, ok := r.filled(v)
	abstract := strings.HasPrefix(s, "@") && len(s) > 1
	switch {
	case !ok:
	case !abstract && !filepath.IsAbs(s):
		r.fault(v, "%s is no absolute path; write for example /run/crosscheck/name.sock, or @name in the abstract namespace", quote(s))
	case len(s) > socketPathMax:
		r.fault(v, "the path has %d bytes; a unix socket's has at most %d", len(s), socketPathMax)
	default:
		return s, true
	}
	return "", false
}
