//go:build !linux

package host

import (
	"context"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Observer cannot see processes and sockets here: its snapshots say so.
type Observer struct{ targets map[string]Target }

// New makes an observer. It starts nothing.
func New(cfg Config, _ Deps) (*Observer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := &Observer{targets: map[string]Target{}}
	for _, t := range cfg.Targets {
		o.targets[t.Name] = t
	}
	return o, nil
}

// Run waits until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Snapshot says that this operating system is not supported.
func (o *Observer) Snapshot(name string) (Snapshot, bool) {
	t, ok := o.targets[name]
	if !ok {
		return Snapshot{}, false
	}
	trouble := Trouble{checks.ReasonUnsupported, "inside looks need Linux, this is " + runtime.GOOS}
	s := Snapshot{Target: name, Sweep: 1, At: BootTime(), DumpAt: BootTime(), Trouble: trouble, DumpTrouble: trouble}
	for _, a := range t.listeners() {
		s.Listeners = append(s.Listeners, Listener{Addr: a})
	}
	for _, name := range t.UnixListeners {
		s.Listeners = append(s.Listeners, Listener{Path: name})
	}
	return s, true
}

// Changed never receives.
func (o *Observer) Changed() <-chan struct{} { return nil }

// Accepted knows nothing.
func (o *Observer) Accepted(string, netip.AddrPort, netip.AddrPort) (accepted, known bool) {
	return false, false
}

// Targets returns the names of the targets, sorted.
func (o *Observer) Targets() []string { return slices.Sorted(maps.Keys(o.targets)) }

// Connections knows nothing.
func (o *Observer) Connections() []Connections { return nil }

// CPU knows nothing.
func (o *Observer) CPU(string) (used time.Duration, ok bool) { return 0, false }

// InNamespace calls f: there are no network namespaces here.
func (o *Observer) InNamespace(_ string, f func() error) error { return f() }

// Stats are all zero.
func (o *Observer) Stats() Stats { return Stats{Connector: ConnectorOff} }

var epoch = time.Now()

// BootTime is the time since this process began: there are no start ticks here
// to compare it with.
func BootTime() time.Duration { return time.Since(epoch) }
