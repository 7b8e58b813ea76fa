// Package lab starts the lab: a small load balancer of our own, in processes
// of its own, that can be broken in the ways real ones were. It answers "what
// would Crosscheck have said?" on a machine where nothing else is installed.
// It serves on loopback only, and leaves no process behind, however its
// parent ends.
//
// A program that imports it can become the lab's main or worker process: see
// package balancer, which takes such a process over before func main runs.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab/balancer"
)

// How workers come by their listening socket (Options.Listener).
const (
	Shared    = string(balancer.Shared)
	Reuseport = string(balancer.Reuseport)
)

// Options say what to start. The zero value is a shared listener on a free
// port of 127.0.0.1, four workers, and a respawn after 100 ms.
type Options struct {
	// Listener is Shared or Reuseport; empty means Shared.
	Listener string
	// Workers is the number of worker processes; zero means DefaultWorkers.
	Workers int
	// Respawn is the time from a worker's death to its replacement's birth;
	// zero means DefaultRespawn. There is no back-off and no limit.
	Respawn time.Duration
	// Addr is an IPv4 loopback address and a port, 0 for any free one. The
	// zero value means 127.0.0.1:0.
	Addr netip.AddrPort
	// PIDFile is where main writes its process id; empty means a file in a
	// temporary directory. Main removes it when it ends.
	PIDFile string
}

// Defaults of Options. Four workers: as small as k of n is still worth seeing.
// 100 ms: the pace at which Sōzu-like mains notice and replace a dead worker,
// chosen and printed with every result.
const (
	DefaultWorkers = 4
	DefaultRespawn = 100 * time.Millisecond
)

// maxWorkers is chosen: a lab, not a load test.
const maxWorkers = 64

// withDefaults fills the zero values in and refuses what cannot be meant.
func (o Options) withDefaults() (Options, error) {
	if o.Listener == "" {
		o.Listener = Shared
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Respawn == 0 {
		o.Respawn = DefaultRespawn
	}
	if !o.Addr.IsValid() {
		o.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	}
	switch {
	case o.Listener != Shared && o.Listener != Reuseport:
		return o, fmt.Errorf("start lab: listener %q is neither %s nor %s", o.Listener, Shared, Reuseport)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return o, fmt.Errorf("start lab: %d workers, want 1 to %d", o.Workers, maxWorkers)
	case o.Respawn < time.Millisecond:
		return o, fmt.Errorf("start lab: respawn after %s, want at least 1ms", o.Respawn)
	case !o.Addr.Addr().Is4() || !o.Addr.Addr().IsLoopback():
		return o, fmt.Errorf("start lab: %s is not an IPv4 loopback address", o.Addr)
	}
	return o, nil
}

// args are main's arguments, in balancer's order.
func (o Options) args() []string {
	return []string{
		o.Listener, o.Addr.Addr().String(), strconv.Itoa(int(o.Addr.Port())),
		strconv.Itoa(o.Workers), o.Respawn.String(), o.PIDFile,
	}
}

// Status is what main knows of itself.
type Status struct {
	Main     int            `json:"main"` // process id
	Listener string         `json:"listener"`
	Addr     netip.AddrPort `json:"addr"`
	PIDFile  string         `json:"pid_file"`
	// Workers are those in service, living when main last heard of them. A slot
	// whose worker is dead and not replaced yet is absent.
	Workers []Worker `json:"workers"`
	// Draining counts old workers that finish their connections.
	Draining int `json:"draining"`
	Routes   int `json:"routes"`
	// Births and Deaths count worker processes since the start.
	Births    int `json:"births"`
	Deaths    int `json:"deaths"`
	RespawnMS int `json:"respawn_ms"`
	// DeadWorkersCPU is the CPU time, in microseconds, that all dead workers
	// used from birth to death.
	DeadWorkersCPU int64 `json:"dead_workers_cpu_us"`
}

// Worker is one worker process.
type Worker struct {
	PID   int  `json:"pid"`
	Ready bool `json:"ready"` // it has inserted the state and serves
}

// Lab is a running load balancer.
type Lab struct {
	o Options // nothing is left to choose
	// hold is bound to the port and never listens: the port stays ours while
	// main is dead.
	hold *os.File

	// turn is for one command or fault at a time.
	turn sync.Mutex

	mu sync.Mutex
	// mu guards the fields below.
	main     *process
	doom     *doom    // restarts main in vain; nil if main lives
	imposter *process // nil if nobody stole the port
	stopped  bool
}

// Start starts main and its workers and returns when all of them serve. When
// ctx ends, the lab ends too, as by Stop.
func Start(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{o: o}
	if l.hold, l.o.Addr, err = holdPort(o.Addr, o.Listener == Reuseport); err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	p, err := l.startMain("")
	if err != nil {
		l.hold.Close()
		return nil, err
	}
	l.main = p
	stopWatching := context.AfterFunc(ctx, l.end)
	status, err := p.read()
	if err != nil {
		stopWatching()
		l.Stop()
		return nil, errors.Join(err, context.Cause(ctx))
	}
	l.o.PIDFile = status.PIDFile
	return l, nil
}

// startMain starts a main process with the lab's options; fate is empty or
// balancer.Doomed. The caller reads its first answer.
func (l *Lab) startMain(fate string) (*process, error) {
	return startProcess("", balancer.MainArg, append(l.o.args(), fate))
}

// current is main, or the last one there was.
func (l *Lab) current() *process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.main
}

// PID returns main's process id.
func (l *Lab) PID() int { return l.current().pid }

// Addr returns the address that the lab serves on.
func (l *Lab) Addr() netip.AddrPort { return l.o.Addr }

// PIDFile returns the file in which main wrote its process id.
func (l *Lab) PIDFile() string { return l.o.PIDFile }

// Done is closed when the present main has ended, for whatever reason.
func (l *Lab) Done() <-chan struct{} { return l.current().done }

// AddRoute gives main a hostname, as a control plane does: main keeps it and
// pushes it to every worker. A host with a slash, such as "example.com/",
// starts the crash loop. It returns when the push is written, before the
// workers are dead.
func (l *Lab) AddRoute(host, backend string) error {
	return l.ask(balancer.CmdAddRoute, host, backend)
}

// RemoveRoute takes a hostname out of main's state. Workers born from then on
// live.
func (l *Lab) RemoveRoute(host string) error { return l.ask(balancer.CmdRemoveRoute, host) }

// ShutListeners has every worker call shutdown(2) on its listening socket and
// keep the descriptor. The workers live on and serve nobody new.
func (l *Lab) ShutListeners() error { return l.ask(balancer.CmdShutListeners) }

// Reopen opens new listeners, in new workers; the old ones drain.
func (l *Lab) Reopen() error { return l.ask(balancer.CmdReopen) }

// KillOnce sends SIGKILL to every worker, once. Main replaces them.
func (l *Lab) KillOnce() error { return l.ask(balancer.CmdKillOnce) }

// Reload replaces all workers gracefully. It returns when the new ones serve
// and the old ones have been told to drain.
func (l *Lab) Reload() error { return l.ask(balancer.CmdReload) }

// Status asks main for what it knows.
func (l *Lab) Status() (Status, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	return l.command(balancer.CmdStatus)
}

// Stop ends the lab and returns when its processes have been reaped; main kills
// its workers and reaps them first. It may be called more than once.
func (l *Lab) Stop() {
	l.end()
	l.turn.Lock() // whoever restarted main is done
	defer l.turn.Unlock()
	l.mu.Lock()
	main, doom, imposter := l.main, l.doom, l.imposter
	l.mu.Unlock()
	if doom != nil {
		<-doom.done
	}
	if imposter != nil {
		imposter.end()
	}
	main.end()
	l.hold.Close()
	// If a process was killed by force, it could not tidy up after itself. A
	// directory goes only if it is empty and was made by the lab.
	if l.o.PIDFile == "" {
		return
	}
	os.Remove(l.o.PIDFile)
	if dir, ours := balancer.TempDirOf(l.o.PIDFile); ours {
		os.Remove(dir)
	}
}

// end tells every process to end and does not wait.
func (l *Lab) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.doom != nil {
		l.doom.cancel()
	}
	for _, p := range []*process{l.main, l.imposter} {
		if p != nil {
			p.stop()
		}
	}
}

// ask sends a command and returns main's objection, if it has one.
func (l *Lab) ask(words ...string) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	_, err := l.command(words...)
	return err
}

// command is ask for those whose turn it is.
func (l *Lab) command(words ...string) (Status, error) {
	line := strings.TrimRight(strings.Join(words, " "), " ")
	for _, w := range words[1:] {
		if strings.ContainsAny(w, "\n\r") || (w == words[1] && strings.ContainsRune(w, ' ')) {
			return Status{}, fmt.Errorf("lab %s: %q does not fit in a line of words", words[0], w)
		}
	}
	status, err := l.current().command(line)
	if err != nil {
		return status, fmt.Errorf("lab %s: %w", words[0], err)
	}
	return status, nil
}
