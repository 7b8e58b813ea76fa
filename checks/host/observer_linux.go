package host

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"
)

// Observer watches the listeners and processes of all targets of this host.
// Run owns everything but what is marked; the other methods may be called from
// any goroutine, also before and after Run.
type Observer struct {
	// Set by New.
	kernel  kernel
	log     *slog.Logger
	changed chan struct{}
	byName  map[string]*target
	stats   counters // atomic

	// Owned by the run goroutine.
	targets  []*target
	tokens   map[uint32]*proc
	lastDump time.Duration
	dumpErr  error
	diagLoud bool
}

// kernel is what the observer asks of the machine; tests put parts in its place.
type kernel struct {
	fs *procfs
	// listening is the LISTEN dump; nil opens sock_diag in Run.
	listening func() ([]socket, error)
	now       func() time.Duration
	// pids: the numbers under fs are this kernel's, so that pidfds make sense.
	pids  bool
	watch *watcher
}

type counters struct{ sweeps, dumps, exits, unseen, scans, errors atomic.Uint64 }

// New makes an observer. It starts nothing.
func New(cfg Config, deps Deps) (*Observer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	root := deps.Root
	if root == "" {
		root = "/proc"
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	o := &Observer{
		kernel:  kernel{fs: newProcfs(root), now: BootTime, pids: root == "/proc"},
		log:     log,
		changed: make(chan struct{}, 1),
		byName:  map[string]*target{},
		tokens:  map[uint32]*proc{},
	}
	for _, c := range cfg.Targets {
		t := newTarget(c)
		o.targets = append(o.targets, t)
		o.byName[c.Name] = t
	}
	return o, nil
}

// Snapshot returns what is known of a target; ok is false for an unknown name
// and before the first sweep.
func (o *Observer) Snapshot(name string) (snap Snapshot, ok bool) {
	t := o.byName[name]
	if t == nil {
		return Snapshot{}, false
	}
	s := t.published.Load()
	if s == nil {
		return Snapshot{}, false
	}
	return *s, true
}

// Changed receives after something changed and after each sweep of a
// suspicious target. Signals that nobody took yet are one.
func (o *Observer) Changed() <-chan struct{} { return o.changed }

// Stats returns the counters.
func (o *Observer) Stats() Stats {
	c := &o.stats
	return Stats{Sweeps: c.sweeps.Load(), Dumps: c.dumps.Load(), Exits: c.exits.Load(),
		Unseen: c.unseen.Load(), Scans: c.scans.Load(), Errors: c.errors.Load()}
}

// Run observes until ctx ends and then returns nil. What it may not see
// becomes trouble in the snapshots, never an error; it returns an error only
// if it cannot watch processes at all. It may be called once.
func (o *Observer) Run(ctx context.Context) error {
	w, err := newWatcher()
	if err != nil {
		return fmt.Errorf("host observer: %w", err)
	}
	o.kernel.watch = w
	if o.kernel.listening == nil {
		d, err := openDiag()
		if err != nil {
			o.kernel.listening = func() ([]socket, error) { return nil, err }
		} else {
			defer d.close()
			o.kernel.listening = d.listening
		}
	}
	defer o.release()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { w.interrupt(); close(interrupted) })
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	// One goroutine sleeps in the kernel and works: with timers, channels and a
	// second goroutine each wake cost several switches between threads.
	for ctx.Err() == nil {
		next := o.work()
		if err := w.wait(next-o.kernel.now(), o.note); err != nil {
			return fmt.Errorf("host observer: %w", err)
		}
	}
	return nil
}

// note takes an event of the kernel about one process.
func (o *Observer) note(w wake) {
	p := o.tokens[w.token]
	if p == nil {
		return
	}
	delete(o.tokens, w.token)
	p.token = 0
	p.diedAt = w.at
	p.target.hurry(o.kernel.now())
}

// work does what is due and returns when something is due again.
func (o *Observer) work() time.Duration {
	now := o.kernel.now()
	due := o.lastDump+DumpEvery <= now || o.lastDump == 0
	for _, t := range o.targets {
		// A fast sweep comes with a dump. Two targets out of step share one.
		due = due || t.fast && t.next <= now && o.lastDump+FastEvery*3/4 <= now
	}
	if due {
		o.dump(now)
		now = o.kernel.now()
	}
	signal := false
	next := o.lastDump + DumpEvery
	for _, t := range o.targets {
		if t.next <= now {
			o.sweep(t)
			signal = signal || t.fast
		}
		signal = signal || t.changed
		t.changed = false
		if t.stale {
			t.publish(o.dumpErr)
		}
		next = min(next, t.next)
	}
	if signal {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	return next
}

func (o *Observer) dump(now time.Duration) {
	o.lastDump = now
	o.stats.dumps.Add(1)
	sockets, err := o.kernel.listening()
	if err != nil {
		o.stats.errors.Add(1)
		if !o.diagLoud {
			o.log.Error("cannot list the listening sockets: port checks are blind until it works again", "error", err)
		}
	}
	o.diagLoud = err != nil
	o.dumpErr = err
	at := o.kernel.now()
	for _, t := range o.targets {
		t.dumped(sockets, err, at)
	}
}

// release gives everything back at the end of Run.
func (o *Observer) release() {
	o.kernel.watch.close()
	for _, t := range o.targets {
		for _, p := range t.procs() {
			o.forget(p)
		}
	}
}

// newTarget is a target of which nothing is known.
func newTarget(c Target) *target {
	t := &target{cfg: c, kids: map[ID]*proc{}}
	for _, a := range c.listeners() {
		t.listeners = append(t.listeners, &listener{Listener: Listener{Addr: a}})
	}
	return t
}

// matching are the sockets of a dump that satisfy a declared address.
func matching(sockets []socket, declared netip.AddrPort, into []socket) []socket {
	for i := range sockets {
		if sockets[i].satisfies(declared) {
			into = append(into, sockets[i])
		}
	}
	return into
}
