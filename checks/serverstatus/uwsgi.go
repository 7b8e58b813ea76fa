package serverstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// UWSGI asks a uwsgi for its statistics (--stats ADDRESS, without --stats-http)
// at HOST:PORT or the path of a unix socket. A thread of main answers.
func UWSGI(address string) (Source, error) {
	p, err := socketOrPort("uwsgi", address)
	return uwsgi{p}, err
}

type uwsgi struct{ place }

// Read implements Source.
func (u uwsgi) Read(ctx context.Context) (Status, error) {
	answer, err := u.ask(ctx, "") // it speaks first
	if err != nil {
		return Status{}, err
	}
	s, err := parseUWSGI(answer)
	if err != nil {
		return Status{}, u.errorf("%w", err)
	}
	return s, nil
}

// uwsgiStats is the part of the statistics that we read (stats subsystem in
// uwsgi's documentation; field names as 2.0.21 sends them).
type uwsgiStats struct {
	Version     string
	ListenQueue *int `json:"listen_queue"`
	Sockets     []struct {
		Queue    int
		MaxQueue int `json:"max_queue"`
	}
	Workers []struct {
		PID          int
		Accepting    int
		Requests     uint64
		Status       string
		RespawnCount uint64 `json:"respawn_count"`
	}
}

func parseUWSGI(answer []byte) (Status, error) {
	var u uwsgiStats
	if err := json.Unmarshal(answer, &u); err != nil {
		return Status{}, fmt.Errorf("%q is no statistics: %w", word(string(answer)), err)
	}
	if u.ListenQueue == nil || u.Version == "" {
		return Status{}, fmt.Errorf("neither version nor listen_queue in %q", word(string(answer)))
	}
	s := Status{Server: "uwsgi", OutOfBand: true, QueueKnown: true}
	longest := 0
	for _, sock := range u.Sockets {
		s.Queue += sock.Queue
		longest = max(longest, sock.MaxQueue)
	}
	if len(u.Sockets) == 0 {
		s.Queue = *u.ListenQueue
	}
	var again uint64
	for _, w := range u.Workers {
		// A worker's first life is its respawn number 1; one that is "cheap" is a slot
		// without a process.
		again += max(w.RespawnCount, 1) - 1
		state := word(w.Status)
		if w.Accepting == 0 && state == "idle" {
			state = "idle and not accepting"
		}
		s.Workers = append(s.Workers, Worker{PID: w.PID, State: state, Requests: w.Requests,
			Busy: !slices.Contains([]string{"idle", "cheap", "pause"}, w.Status)})
	}
	s.Text = "uwsgi: " + plural(len(s.Workers), "worker")
	if len(s.Workers) > 0 {
		s.Text += " (" + states(s.Workers) + ")"
	}
	s.Text += fmt.Sprintf(", %s, %s waiting", plural(again, "respawn"), plural(s.Queue, "connection"))
	if longest > 0 {
		s.Text += fmt.Sprintf(" of %d", longest)
	}
	return s, nil
}
