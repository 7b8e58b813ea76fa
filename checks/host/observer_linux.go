package host

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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
	host    atomic.Pointer[HostState]
	lookups lookups
	scrape  scrape

	// Owned by the run goroutine.
	targets  []*target
	pidfds   int // open
	tokens   map[uint32]*proc
	pressure *pressure
	// nextSecondly is when what is read once a second is read again.
	nextSecondly time.Duration
	connector    *connector // nil before Run
	lastDump     time.Duration
	// glancedAt is when workers were last glanced at, glanceFirst the target that
	// is first the next time.
	glancedAt   time.Duration
	glanceFirst int
	diagLoud    bool
	walkAt      time.Duration // when all of /proc may be walked again
	groups      map[string]*group
	ownSpace    uint64            // our network namespace's inode; 0 if not known
	spaces      map[uint64]*space // the others that are open, by inode
	wantsUnix   bool              // a target declares unix listeners
	systemd     *systemd          // nil if no target has a unit
	groupBuf    [4096]byte        // cgroup files are shorter
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
	// cpuClock is the CPU time of all threads of a process; nil if there is none,
	// and then each process is read in each sweep.
	cpuClock func(pid int) (time.Duration, bool)
	// burner names the control group that used most CPU since it was asked last,
	// and its share of one core; nil names none. It is asked each second.
	burner func(h HostState) (cgroup string, share float64)
	// hierarchies are the control groups' mounts; none if there are no groups.
	hierarchies hierarchies
}

type counters struct {
	sweeps, dumps, exits, unseen, scans, errors                        atomic.Uint64
	connectorEvents, connectorLost, connectorResyncs, connectorDropped atomic.Uint64
	connector                                                          atomic.Pointer[ConnectorState] // nil: off
}

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
		scrape:  scrape{fs: newProcfs(root), used: map[string]usage{}},
	}
	if b, err := o.kernel.fs.read(root + "/self/mountinfo"); err == nil {
		o.kernel.hierarchies = parseCgroupMounts(b)
	}
	o.kernel.burner = (&burner{mounts: o.kernel.hierarchies, now: BootTime}).name
	var own unix.Stat_t
	if o.kernel.pids && unix.Stat("/proc/self/ns/net", &own) == nil {
		o.ownSpace = own.Ino
	}
	o.systemd = newSystemd(cfg.Targets, deps, log)
	if o.kernel.pids {
		o.kernel.cpuClock = cpuClock
		o.kernel.fs.kept = map[int]*keptFiles{}
	}
	o.pressure = newPressure(o.kernel.fs)
	o.host.Store(&HostState{CPUPressure: -1, CPUs: o.pressure.cpus})
	for i, c := range cfg.Targets {
		t := newTarget(c)
		o.wantsUnix = o.wantsUnix || len(c.UnixListeners) > 0
		t.turn = time.Duration(i) * DumpEvery % SweepEvery
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
	// Most dumps bring nothing new, and then only these move. They are read before
	// the snapshot and written after it: never newer than what they count.
	dumps, at := t.freshDumps.Load(), time.Duration(t.freshAt.Load())
	s := t.published.Load()
	if s == nil {
		return Snapshot{}, false
	}
	snap = *s
	snap.Dump, snap.DumpAt, snap.Host = max(snap.Dump, dumps), max(snap.DumpAt, at), *o.host.Load()
	return snap, true
}

// Changed receives after something changed and after each sweep of a
// suspicious target, or of one in which a thread may be spinning. Signals that nobody took yet are one.
func (o *Observer) Changed() <-chan struct{} { return o.changed }

// Stats returns the counters.
func (o *Observer) Stats() Stats {
	c := &o.stats
	state := ConnectorOff
	if s := c.connector.Load(); s != nil {
		state = *s
	}
	return Stats{Sweeps: c.sweeps.Load(), Dumps: c.dumps.Load(), Exits: c.exits.Load(),
		Unseen: c.unseen.Load(), Scans: c.scans.Load(), Errors: c.errors.Load(),
		Connector: state, ConnectorEvents: c.connectorEvents.Load(), ConnectorLost: c.connectorLost.Load(),
		ConnectorResyncs: c.connectorResyncs.Load(), ConnectorDrops: c.connectorDropped.Load()}
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
			d.unix = o.wantsUnix
			o.kernel.listening = d.listening
		}
	}
	o.keepFiles()
	defer o.release()
	o.openConnector()
	if o.systemd != nil {
		var asked sync.WaitGroup
		defer asked.Wait()
		asking, enough := context.WithCancel(ctx)
		defer enough()
		asked.Go(func() { o.systemd.run(asking) })
	}
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
		o.pressure.woken(o.kernel.now() - next)
	}
	return nil
}

// note takes an event of the kernel about one process.
func (o *Observer) note(w wake) {
	if w.token == connectorToken {
		o.readConnector()
		return
	}
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
	o.secondly(now)
	due := o.lastDump+DumpEvery <= now || o.lastDump == 0
	for _, t := range o.targets {
		// A fast sweep comes with a dump. Two targets out of step share one.
		due = due || t.fast && t.next <= now && o.lastDump+FastEvery*3/4 <= now
	}
	if due {
		o.dump(now)
		o.glance(now)
		now = o.kernel.now()
	}
	signal, swept := false, false
	next := o.lastDump + DumpEvery
	for _, t := range o.targets {
		if t.next <= now || t.rides && due && t.next <= now+DumpEvery/2 {
			o.sweep(t)
			swept = true
			signal = signal || t.fast || t.spentAt != 0 // slow again, and still suspicious
		}
		signal = signal || t.changed
		t.changed = false
		if t.stale {
			t.publish(t.dumpErr)
		}
		t.freshDumps.Store(t.dumps)
		t.freshAt.Store(int64(t.lastDump))
	}
	if swept {
		o.aimConnector(now)
	}
	// Only now: while one target is swept, an event may hurry another.
	for _, t := range o.targets {
		if !t.rides {
			next = min(next, t.next)
		}
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
	sortByPort(sockets)
	for _, s := range o.spaces {
		s.asked = false
	}
	for _, t := range o.targets {
		mine, err := t.where.listening(t, sockets, err)
		t.stale = t.stale || err != nil || t.dumpErr != nil
		t.dumpErr = err
		t.dumped(mine, err, o.kernel.now())
	}
}

// release gives everything back at the end of Run.
func (o *Observer) release() {
	o.closeConnector()
	o.setConnector(ConnectorOff)
	o.lookups.close()
	o.closeGroups()
	for _, t := range o.targets {
		t.where.space = nil
		t.inside.Store(0)
	}
	o.closeSpaces()
	o.kernel.watch.close()
	for _, t := range o.targets {
		for _, p := range t.procs() {
			o.forget(p)
		}
	}
}

// newTarget is a target of which nothing is known.
func newTarget(c Target) *target {
	t := &target{cfg: c, kids: map[ID]*proc{}, byPID: map[int]*proc{}, oom: groupFile{-1}}
	if c.Cmdline != "" {
		t.cmdline = regexp.MustCompile(c.Cmdline) // Validate has tried it
	}
	if c.WorkerName != "" {
		t.workerName = regexp.MustCompile(c.WorkerName)
	}
	for _, a := range c.listeners() {
		t.listeners = append(t.listeners, &listener{Listener: Listener{Addr: a}})
	}
	for _, name := range c.UnixListeners {
		t.listeners = append(t.listeners, &listener{Listener: Listener{Path: name}})
	}
	return t
}

// sortByPort makes a dump ready for matching.
func sortByPort(sockets []socket) {
	slices.SortStableFunc(sockets, func(a, b socket) int { return cmp.Compare(a.addr.Port(), b.addr.Port()) })
}

// matching are the sockets of a dump, sorted by port, that satisfy the listener.
// Unix sockets have no port: they come first.
func (l *listener) matching(sockets []socket, into []socket) []socket {
	if l.Path == "" {
		return matching(sockets, l.Addr, into)
	}
	for i := 0; i < len(sockets) && sockets[i].addr.Port() == 0; i++ {
		if sockets[i].path == l.Path {
			into = append(into, sockets[i])
		}
	}
	return into
}

// matching are the sockets of a dump, sorted by port, that satisfy a declared
// address.
func matching(sockets []socket, declared netip.AddrPort, into []socket) []socket {
	first, _ := slices.BinarySearchFunc(sockets, declared.Port(), func(s socket, port uint16) int { return cmp.Compare(s.addr.Port(), port) })
	for i := first; i < len(sockets) && sockets[i].addr.Port() == declared.Port(); i++ {
		if sockets[i].satisfies(declared) {
			into = append(into, sockets[i])
		}
	}
	return into
}
