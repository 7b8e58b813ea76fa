//go:build !linux

package host

import (
	"context"
	"runtime"
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
	return s, true
}

// Changed never receives.
func (o *Observer) Changed() <-chan struct{} { return nil }

// Stats are all zero.
func (o *Observer) Stats() Stats { return Stats{} }

var epoch = time.Now()

// BootTime is the time since this process began: there are no start ticks here
// to compare it with.
func BootTime() time.Duration { return time.Since(epoch) }
