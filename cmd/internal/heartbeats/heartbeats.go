// Package heartbeats lets the heartbeat checks of a configuration live: it runs
// them, takes their beats over HTTP, and tells the vantage when one has something
// to say.
package heartbeats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/probe/vantage"
)

// Path is where Handler belongs.
const Path = "/heartbeat/"

// Set is the heartbeat checks of one process. It may be empty.
type Set struct {
	checks  []*heartbeat.Check
	byID    map[string]*heartbeat.Check
	jobs    []vantage.Job
	host    <-chan struct{} // changes of the host to pass on; may be nil
	changed chan struct{}
}

// New makes the heartbeat checks among the inside checks. They wait from now on.
func New(inside []config.InsideCheck, log *slog.Logger) (*Set, error) {
	s := &Set{byID: map[string]*heartbeat.Check{}, changed: make(chan struct{}, 1)}
	for _, i := range inside {
		if i.Heartbeat == nil {
			continue
		}
		c, err := heartbeat.New(*i.Heartbeat, heartbeat.Deps{Changed: s.signal, Log: log})
		if err != nil {
			return nil, err
		}
		s.checks = append(s.checks, c)
		s.byID[i.ID] = c
		s.jobs = append(s.jobs, vantage.Job{ID: i.ID, Kind: checks.KindHeartbeat, Check: c, Interval: i.Interval, Timeout: i.Timeout})
	}
	return s, nil
}

// Checks returns the checks, in the order of the configuration.
func (s *Set) Checks() []*heartbeat.Check { return s.checks }

// Jobs returns what a vantage does with them.
func (s *Set) Jobs() []vantage.Job { return s.jobs }

// Changed returns what a vantage waits for: changes of the host (may be nil) and
// of heartbeats. It is called once, before Run.
func (s *Set) Changed(host <-chan struct{}) <-chan struct{} {
	if len(s.checks) == 0 {
		return host
	}
	s.host = host
	return s.changed
}

func (s *Set) signal() {
	select {
	case s.changed <- struct{}{}:
	default: // signals that nobody took yet are one
	}
}

// Run runs the checks until ctx ends. It returns nil.
func (s *Set) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, c := range s.checks {
		parts.Go(func() { _ = c.Run(ctx) }) // always nil
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.host:
			s.signal()
		}
	}
	parts.Wait()
	return nil
}

// bodyWithin bounds how long a client may take to send its few lines; chosen.
const bodyWithin = 5 * time.Second

// Handler takes POST /heartbeat/SERVICE/CHECK and
// /heartbeat/SERVICE/CHECK/WORKER. The body may hold lines of sd_notify(3). It
// answers 204, 404 for what is not configured, 400 for what cannot be read, 429
// for too many.
func (s *Set) Handler() http.Handler {
	mux := http.NewServeMux()
	// Not GET: a browser or a link preview is no sign of life.
	mux.HandleFunc("POST "+Path+"{service}/{check}", s.take)
	mux.HandleFunc("POST "+Path+"{service}/{check}/{worker}", s.take)
	return mux
}

func (s *Set) take(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("service") + "/" + r.PathValue("check")
	c := s.byID[id]
	if c == nil {
		http.Error(w, fmt.Sprintf("no heartbeat check %q here", id), http.StatusNotFound)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin)) // unsupported by recorders in tests
	body, err := io.ReadAll(io.LimitReader(r.Body, heartbeat.MessageLimit+1))
	if err != nil {
		http.Error(w, "read body: "+err.Error(), http.StatusBadRequest)
		return
	}
	beat, err := heartbeat.ParseNotify(body)
	if worker := r.PathValue("worker"); err == nil && worker != "" {
		beat.Worker, err = heartbeat.WorkerName(worker)
	}
	if names := c.Workers(); err == nil && len(names) > 0 && beat.Worker == "" && !beat.Stopping && !beat.Reloading && !beat.Ready {
		err = fmt.Errorf("say which worker beats: POST %s/WORKER, one of %s", r.URL.Path, strings.Join(names, ", "))
	}
	if err != nil {
		c.Refuse(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	beat.Mute = beat.Trigger // whoever asks, lives
	switch err := c.Beat(beat); {
	case errors.Is(err, heartbeat.ErrUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, heartbeat.ErrTooMany):
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
