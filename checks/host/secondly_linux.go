package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// slowEvery is how often what may wait for somebody is read, for all targets at
// once: with a call that may wait, Go's scheduler wakes a monitor that polls as
// long as we work (README, "Decisions"). Chosen: a second less its jitter.
const slowEvery = 900 * time.Millisecond

// secondly reads the state of the machine, whether pid files changed, and the
// titles that are due.
func (o *Observer) secondly(now time.Duration) {
	if now < o.nextSecondly {
		return
	}
	o.nextSecondly = now + slowEvery
	h := o.pressure.read(now)
	if o.kernel.burner != nil {
		h.Burner, h.BurnerShare = o.kernel.burner(h)
	}
	o.host.Store(&h)
	for _, t := range o.targets {
		o.pidFile(t, now)
		if t.main != nil && t.main.reading.titleDue {
			o.title(t.main, now)
		}
		for _, p := range t.kids {
			if p.reading.titleDue {
				o.title(p, now)
			}
		}
	}
}

// pidFile notes whether the pid file of a living main is the one it was found
// by, and has main looked for if it is not.
func (o *Observer) pidFile(t *target, now time.Duration) {
	if t.cfg.PIDFile == "" || t.status != MainAlive || t.pidFile == (fileID{}) {
		t.pidFileSame = false
		return
	}
	var st unix.Stat_t
	err := unix.Stat(t.cfg.PIDFile, &st)
	same := err == nil && t.pidFile == fileID{inode: st.Ino, size: uint64(st.Size), mtime: st.Mtim.Nano()}
	if t.pidFileSame && !same {
		t.hurry(now)
	}
	t.pidFileSame, t.pidFileAt = same, now
}

func (o *Observer) title(p *proc, now time.Duration) {
	r := &p.reading
	r.titleDue, r.titleAt = false, now
	if title := o.kernel.fs.title(p.view.PID); title != p.view.Title {
		p.view.Title, p.target.stale = title, true
	}
}
