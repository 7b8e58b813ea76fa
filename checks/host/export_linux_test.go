package host

import "time"

// Prepare opens what Run would, for tests that step by hand. The function it
// returns closes it again.
func Prepare(o *Observer) (finish func()) {
	w, err := newWatcher()
	if err != nil {
		panic(err)
	}
	d, err := openDiag()
	if err != nil {
		panic(err)
	}
	o.kernel.watch, o.kernel.listening = w, d.listening
	o.keepFiles()
	return func() { o.release(); d.close() }
}

// Step does all there is to do, due or not.
func Step(o *Observer) {
	if err := o.kernel.watch.wait(0, o.note); err != nil {
		panic(err)
	}
	o.lastDump = 0
	for _, t := range o.targets {
		t.next = 0
	}
	o.work()
}

// Dump lists the listening sockets once.
func Dump(o *Observer) { o.dump(o.kernel.now()) }

// Sweep reads the processes of each target once.
func Sweep(o *Observer) {
	for _, t := range o.targets {
		o.sweep(t)
	}
}

// Release gives back what an observer that never ran may have opened.
func Release(o *Observer) { o.lookups.close() }

const GlanceEvery = glanceEvery

// MayHaveStopped glances at a process whose CPU clock it is told, every GlanceEvery.
func MayHaveStopped() func(clock time.Duration) bool {
	p := &proc{}
	return func(clock time.Duration) bool {
		return p.mayHaveStopped(func(int) (time.Duration, bool) { return clock, true }, glanceEvery)
	}
}
