//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

// cellID names one run of one cell.
type cellID struct {
	Server string `json:"server"`
	Fault  string `json:"fault"`
	Round  int    `json:"round"`
}

func (id cellID) String() string { return fmt.Sprintf("%s/%s#%d", id.Server, id.Fault, id.Round) }

// cell is a run under way, in namespaces of its own.
type cell struct {
	srv   *servers.Server
	watch *watch
	group string

	loops sync.WaitGroup

	mu sync.Mutex
	// mu guards the fields below.
	began time.Time // when the fault was made, as near as can be told
	notes []error   // what went wrong on our own side meanwhile
}

// begin says that the fault is made now.
func (c *cell) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = time.Now()
}

// note remembers that something of our own did not work; nil is nothing.
func (c *cell) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, err)
}

// loop runs f beside the cell, which waits for it at its end.
func (c *cell) loop(f func()) { c.loops.Go(f) }

// The addresses inside a cell's network namespace.
var (
	serverAddr = netip.MustParseAddrPort("127.0.0.1:8080")
	originAddr = netip.MustParseAddrPort("127.0.0.1:8090")
)

// learnLimit is how long a server may take to be known as well. Chosen: a starved
// machine's manifold of the 3 s that it takes when it is quiet.
const learnLimit = 25 * time.Second

// cellLimit bounds a cell, should it hang; chosen: above every limit and window
// that its parts have.
const cellLimit = 2 * time.Minute

// cellMain runs the cell that its argument describes and prints the result.
func cellMain(args []string) error {
	var j job
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &j) != nil {
		return fmt.Errorf("%s JOB", roleCell)
	}
	begun := time.Now()
	r := runCell(context.Background(), j)
	r.Cell, r.At, r.WallMS = j.Cell, begun, time.Since(begun).Milliseconds()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// runCell starts the server, watches it, breaks it, and says what was judged.
func runCell(ctx context.Context, j job) result {
	f, err := faultNamed(j.Cell.Fault)
	if err != nil {
		return result{Error: err.Error()}
	}
	log, err := logTo(j.Dir + "/log")
	if err != nil {
		return result{Error: err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := servers.Options{Dir: j.Dir + "/server", Addr: serverAddr, Origin: originAddr}
	if f.Prepare != nil {
		f.Prepare(&o)
	}
	c := &cell{group: j.Group}
	if c.srv, err = startServer(ctx, j.Cell.Server, o); errors.Is(err, servers.ErrMissing) {
		return result{Missing: err.Error()}
	} else if err != nil {
		return result{Error: err.Error()}
	}
	watch, wait, err := startWatch(ctx, c.srv, log)
	if err != nil {
		return result{Error: err.Error()}
	}
	c.watch = watch
	r := c.observe(ctx, f, expect(c.srv.Spec, f.Name))
	cancel()
	c.loops.Wait()
	wait()
	return r
}

func logTo(path string) (*slog.Logger, error) {
	w, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})), nil
}

// startServer starts a server, and an origin for one that only forwards.
func startServer(ctx context.Context, name string, o servers.Options) (*servers.Server, error) {
	for _, spec := range servers.All() {
		if spec.Name != name {
			continue
		}
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, err
		}
		srv, err := servers.Prepare(spec, o)
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", originAddr.String())
		if err != nil {
			return nil, err
		}
		go serveOrigin(l) // until the process ends, which is the cell
		return srv, srv.Start(ctx)
	}
	return nil, fmt.Errorf("no server %q", name)
}

// serveOrigin serves /big for a proxy.
func serveOrigin(l net.Listener) {
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeroes{}, servers.BigBytes)
	}))
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// observe waits until the server is known to be well, breaks it, and follows
// what is judged.
func (c *cell) observe(ctx context.Context, f fault, w want) result {
	if v, ok := c.learn(ctx); !ok {
		return result{Error: "not healthy before anything happened: " + v.State.Verdict.String() + " " + v.State.Sentence,
			Facts: facts(v), Output: c.srv.Output()}
	}
	before, main := len(c.watch.view().Changes), c.srv.Main()
	c.begin()
	if err := f.Do(ctx, c); err != nil {
		return result{Error: fmt.Sprintf("make the fault: %s", err), Facts: facts(c.watch.view()), Output: c.srv.Output()}
	}
	ended := func() bool { return w.IfMainEnds != nil && !servers.Alive(main) }
	seen := observation{LookAlike: w.quiet()}
	if w.quiet() {
		pause(ctx, f.Window)
		if ended() {
			w, seen.LookAlike = *w.IfMainEnds, false
		}
	}
	if !seen.LookAlike {
		w = c.follow(ctx, w, ended, &seen)
	}
	seen.View = c.watch.view()
	if !seen.Known {
		seen.AtKnown = seen.View
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := assess(w, seen, c.began)
	r.Trail = trail(seen.View.Changes[before:], c.began)
	for _, err := range c.notes {
		r.Problems = append(r.Problems, err.Error())
	}
	if r.OK = len(r.Problems) == 0; !r.OK {
		r.Facts, r.Output = facts(seen.AtKnown), c.srv.Output()
	}
	return r
}

// follow waits until the expected cause is known, and a while longer, whether it
// stays what it is. It returns what is expected, which changes if main ends.
func (c *cell) follow(ctx context.Context, w want, ended func() bool, seen *observation) want {
	limited, cancel := context.WithTimeout(ctx, w.limit())
	defer cancel()
	seen.AtKnown, seen.Known = c.watch.await(limited, func(v view) bool {
		if ended() {
			w, ended = *w.IfMainEnds, func() bool { return false }
		}
		return w.known(v.State)
	})
	seen.KnownAt = time.Now()
	pause(ctx, settle)
	return w
}

// learnt is how long a server that looks well is left alone before it is broken:
// the observer counts workers as serving after a second, and looks closely at
// what it does not know yet for as long (checks/host, FastFor).
const learnt = 1500 * time.Millisecond

// learn waits until inside and outside agree that all is well, and all workers
// are known.
func (c *cell) learn(ctx context.Context) (view, bool) {
	ctx, cancel := context.WithTimeout(ctx, learnLimit)
	defer cancel()
	if c.srv.Spec.Elastic {
		c.warm(ctx)
	}
	for {
		c.watch.lookNow()
		some, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		v, ok := c.watch.await(some, c.well)
		stop()
		if ok {
			return v, pause(ctx, learnt)
		}
		if ctx.Err() != nil {
			return v, false
		}
	}
}

// warm fills an elastic pool: more slow requests at a time than it may have
// workers, until it has them all.
func (c *cell) warm(ctx context.Context) {
	if c.srv.Options.IdleTimeout > 0 {
		return // it is to be seen empty
	}
	for len(c.srv.Workers()) < c.srv.Spec.Workers && ctx.Err() == nil {
		var wg sync.WaitGroup
		for range 2 * c.srv.Spec.Workers {
			wg.Go(func() { _, _ = c.srv.Get(ctx, "/sleep") })
		}
		wg.Wait()
	}
}

// well reports whether every check passes and all workers are known to serve.
func (c *cell) well(v view) bool {
	workers, port := v.Findings["web/workers"], v.Findings["web/port"]
	if v.State.Verdict != correlate.Up || workers.Workers == nil || port.Listener == nil || len(v.Findings) < 3 {
		return false
	}
	want := c.srv.Spec.Workers
	if c.srv.Options.IdleTimeout > 0 {
		want = 0
	}
	return workers.Workers.Serving >= want && workers.Workers.EverServed
}
