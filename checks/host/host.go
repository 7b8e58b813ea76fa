// Package host is the one live observer of the machine we run on: which
// sockets listen, which processes make up each watched service, which of them
// were born and died, and how. It answers with plain snapshots. It judges
// nothing, counts no service up or down, and never touches what it watches.
package host

import (
	"log/slog"
	"net/netip"
	"time"
)

// Cadences of JUDGING section 3 ("Suspicion costs little").
const (
	// DumpEvery is how often the listening sockets are asked for.
	DumpEvery = 100 * time.Millisecond
	// SweepEvery is how often the processes of a calm target are read.
	SweepEvery = time.Second
	// FastEvery is the cadence of both for a suspicious target, FastFor how long
	// it may last, and RearmAfter when it may begin again without a calm sweep.
	FastEvery  = 25 * time.Millisecond
	FastFor    = 5 * time.Second
	RearmAfter = 30 * time.Second
	// wakeGap is the least time between two sweeps of a target that is swept
	// fast already; chosen: a kill loop may end hundreds of workers a second.
	wakeGap = 10 * time.Millisecond
	// exitLingers is how long an exit keeps a target suspicious; chosen: twice
	// the time a worker needs to count as serving.
	exitLingers = 2 * time.Second
)

// Target is one service instance to watch.
type Target struct {
	Name string
	// PIDFile names main's process. Empty means that main is found by Port.
	PIDFile string
	// Port is a listening address of the service, used when there is no pid file.
	Port netip.AddrPort
	// Listeners are the declared ones. Port is added to them if it is not there.
	Listeners []netip.AddrPort
	// UnixListeners are the declared unix sockets, by path or "@name".
	UnixListeners []string
	// Other ways to find main, instead of PIDFile and Port: a systemd unit
	// ("nginx.service"), a control group (a path under the cgroup mount), an
	// executable's path, or a regular expression over the command line (the last
	// two together: both must match). Of several matches main is the ancestor of
	// the others, else the oldest.
	Unit, Cgroup, Exe, Cmdline string
	// WorkersBy says who main's workers are: empty for its children, "cgroup" for
	// every other process of its control group, or "name" for the processes of its
	// tree or group whose name matches WorkerName, a regular expression.
	WorkersBy, WorkerName string
	// ConfigFiles are read when main loads its configuration, as glob patterns.
	ConfigFiles []string
	// NetNS is the network namespace of the listeners: empty for main's own.
	NetNS string
}

// Config is what to watch.
type Config struct{ Targets []Target }

// Deps are the observer's surroundings. The zero value is the real machine.
type Deps struct {
	// Root is where procfs is mounted; empty means /proc. Under any other root
	// no pidfds are opened, for the numbers there are not this kernel's.
	Root string
	// SystemBus is the D-Bus address at which systemd is asked for units; empty
	// means the system bus. Only targets with a Unit ask.
	SystemBus string
	// Log may be nil.
	Log *slog.Logger
}

// ConnectorState is what became of the process connector.
type ConnectorState string

// The states.
const (
	ConnectorOff     ConnectorState = "off"     // not asked for: no live /proc, or not running
	ConnectorLive    ConnectorState = "live"    // the kernel tells us
	ConnectorRefused ConnectorState = "refused" // another namespace, or rights that an old kernel wants
	ConnectorDropped ConnectorState = "dropped" // too many events of processes that are none of ours
)

// Stats are the observer's own counters since it was made.
type Stats struct {
	Sweeps uint64 // process sweeps, over all targets
	Dumps  uint64 // listener dumps
	Exits  uint64 // worker and main exits seen
	Unseen uint64 // workers that lived and died between two sweeps
	Scans  uint64 // walks of all of /proc, to find an owner
	Errors uint64 // what we could not read for reasons of our own

	// Connector is the process connector's state; ConnectorEvents are those that
	// passed its filter, ConnectorLost those that the kernel or we had no room for,
	// ConnectorResyncs the sweeps of everything that followed, ConnectorDrops how
	// often it was given up.
	Connector        ConnectorState
	ConnectorEvents  uint64
	ConnectorLost    uint64
	ConnectorResyncs uint64
	ConnectorDrops   uint64
}

// listeners are the declared listeners with Port, each once.
func (t Target) listeners() []netip.AddrPort {
	var out []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	all := t.Listeners
	if t.Port != (netip.AddrPort{}) {
		all = append([]netip.AddrPort{t.Port}, all...)
	}
	for _, l := range all {
		l = netip.AddrPortFrom(l.Addr().Unmap(), l.Port())
		if !seen[l] {
			seen[l] = true
			out = append(out, l)
		}
	}
	return out
}
