package host

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crosscheck-project/crosscheck/checks"
)

// settled is the age from which a process is expected to stay the program it
// is; before it, fork and exec are one birth. Chosen: the start time of a
// worker (one second until it is learnt).
const settled = time.Second

// tries is how often a sweep that a reaped child disturbed is read again.
const tries = 3

// sweep reads the processes of one target.
func (o *Observer) sweep(t *target) {
	now := o.kernel.now()
	previous := t.lastSweep
	t.began = now
	t.sweeps++
	t.stale = true
	o.stats.sweeps.Add(1)
	before := t.trouble
	t.trouble = Trouble{}

	o.touchAll(t, now)
	o.lookGroups(t, now)
	o.resolveMain(t, now)
	o.lookSpace(t, now)
	switch {
	case t.status == MainAlive:
		o.sweepChildren(t, previous)
	case t.trouble == (Trouble{}): // those main left behind
		for _, p := range t.kids {
			o.check(t, p, now)
		}
	}
	o.lookOwners(t, now)
	o.lookConfig(t, now)
	o.signals(t, now)
	if t.trouble != before {
		t.changed = true
		if t.trouble.Reason == checks.ReasonOwnLimit {
			o.log.Warn("cannot read processes", "target", t.cfg.Name, "error", t.trouble.Detail)
		}
	}
	if t.trouble.Reason == checks.ReasonOwnLimit {
		o.stats.errors.Add(1)
	}
	t.lastSweep = now
	t.pace(now)
}

// sweepChildren reads main's children. Main's counters of reaped children are
// read before and after the list: if they agree, the list and the counters
// describe one moment.
func (o *Observer) sweepChildren(t *target, previous time.Duration) {
	fs := o.kernel.fs
	mainPID := t.main.view.PID
	if o.quiet(t) {
		now := o.kernel.now()
		for _, p := range t.kids {
			if p.reading.calm {
				t.rest(p, now)
			} else {
				o.check(t, p, now)
			}
		}
		return
	}
	clear(t.byPID)
	for _, p := range t.kids {
		if p.reading.calm {
			t.byPID[p.view.PID] = p
		}
	}
	var after stat
	consistent := false
	for range tries {
		first, err := fs.stat(mainPID)
		if err == nil {
			t.kidsScratch, err = o.workerPIDs(t, mainPID, t.kidsScratch[:0])
		}
		if err == nil {
			t.statScratch, err = o.readStats(t, t.kidsScratch, t.statScratch[:0])
		}
		if err == nil {
			after, err = fs.stat(mainPID)
		}
		if err != nil {
			if !gone(err) { // main went away just now: the next sweep, at once, says so
				t.blame(err)
			}
			return
		}
		if consistent = first.reaped == after.reaped; consistent {
			break
		}
	}
	now := o.kernel.now() // an upper bound for what was read
	o.readConnector()     // so that it tells of every child that main has reaped so far
	explained := o.mergeChildren(t, t.statScratch, now)
	explained = o.settleBriefs(t, now) || explained
	rose := t.counted && after.reaped > t.reaped
	// Zombies: the kernel adds a child's counters a moment before it unlists it.
	if rose && consistent && !explained && previous != 0 && t.cfg.WorkersBy == "" {
		t.record(Event{Kind: Unseen, Born: previous, At: now})
		t.lastExit = now
		o.stats.unseen.Add(1)
	}
	t.reaped, t.counted = after.reaped, consistent
}

// quiet reports that main has neither forked nor waited since the last sweep, so
// that its list of children need not be read: it has not run.
func (o *Observer) quiet(t *target) bool {
	return t.main.reading.calm && t.counted && t.cfg.WorkersBy == "" && len(t.briefs) == 0
}

// readStats reads the stat of each child listed that is not known to be as it
// was. A child that is not there any
// more is left out; one that exists and is hidden is trouble.
func (o *Observer) readStats(t *target, pids []int, into []stat) ([]stat, error) {
	now := o.kernel.now()
	for _, pid := range pids {
		if p := t.byPID[pid]; p != nil {
			t.rest(p, now)
			continue
		}
		s, err := o.kernel.fs.stat(pid)
		switch {
		case err == nil:
			if o.isWorker(t, &s) {
				into = append(into, s)
			}
		case !gone(err):
			return into, err
		case o.hidden(pid):
			t.trouble = hiddenTrouble(pid)
		}
	}
	return into, nil
}

// mergeChildren brings the known workers up to date: deaths first, then
// births. explained says that a known worker ended, or is a zombie, so that a
// rise of main's counters needs no other ground.
func (o *Observer) mergeChildren(t *target, stats []stat, now time.Duration) (explained bool) {
	for i := range stats {
		s := &stats[i]
		if p := t.kids[ID{s.pid, s.start}]; p != nil {
			o.update(t, p, s, now)
			explained = explained || p.dead
		}
	}
	for _, p := range t.kids {
		if p.listed != t.sweeps && o.check(t, p, now) {
			explained = true
		}
	}
	for i := range stats {
		s := &stats[i]
		id := ID{s.pid, s.start}
		if t.kids[id] != nil || s.procState() == checks.ProcGone {
			continue
		}
		p := o.meet(t, s, now)
		t.kids[id] = p
		t.record(Event{Kind: Birth, Process: id, Comm: s.comm, Born: s.born(), At: now})
		if s.procState() == checks.ProcZombie {
			o.died(t, p, s, now)
			explained = true
		}
	}
	return explained
}

// check looks at a known worker that the children list lacked. The list is
// racy while main forks, so its absence there proves nothing. It reports
// whether the worker has ended.
func (o *Observer) check(t *target, p *proc, now time.Duration) (ended bool) {
	s, err := o.kernel.fs.stat(p.view.PID)
	switch {
	case err != nil && !gone(err):
		t.blame(err)
		return false
	case err != nil && o.hidden(p.view.PID) && p.diedAt == 0:
		t.trouble = hiddenTrouble(p.view.PID)
		return false
	case err == nil && s.start == p.view.StartTicks && s.procState() != checks.ProcGone:
		if t.status == MainAlive && (s.ppid != t.main.view.PID || t.cfg.WorkersBy != "") && s.procState() != checks.ProcZombie {
			o.drop(t, p) // it lives on under another parent, or in another group
			return false
		}
		o.update(t, p, &s, now)
		return p.dead
	}
	o.died(t, p, nil, now)
	o.drop(t, p)
	return true
}

func (o *Observer) drop(t *target, p *proc) {
	o.forget(p)
	delete(t.kids, p.view.ID)
}

// meet starts to watch a process.
func (o *Observer) meet(t *target, s *stat, now time.Duration) *proc {
	p := &proc{target: t, pidfd: -1, listed: t.sweeps, visible: s.startCode != 1 && s.startCode != 0}
	p.view = Process{ID: ID{s.pid, s.start}, PPID: s.ppid, Comm: s.comm, State: s.procState(), Traced: s.state == 't', Born: s.born(), Age: max(0, now-s.born())}
	p.reading.took(s, now)
	if p.view.Age >= settled {
		p.view.Exe = o.kernel.fs.exe(s.pid)
	}
	if o.kernel.watch == nil || !o.kernel.pids {
		return p
	}
	if o.pidfds >= o.kernel.fs.openMost {
		return p // one of a crowd: it is polled in each sweep
	}
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		if !gone(err) {
			o.stats.errors.Add(1)
			t.blame(err)
		}
		return p // gone already: the next sweep says so
	}
	o.kernel.fs.keep(s.pid)
	p.keeps = true
	// The pid may have been given away between stat and open.
	if again, err := o.kernel.fs.stat(s.pid); err != nil || again.start != s.start {
		unix.Close(fd)
		o.forget(p)
		return p
	}
	p.pidfd = fd
	o.pidfds++
	if p.token, err = o.kernel.watch.add(fd); err != nil {
		o.stats.errors.Add(1)
		t.blame(err)
		return p
	}
	o.tokens[p.token] = p
	return p
}

// update takes a new stat of a known process.
func (o *Observer) update(t *target, p *proc, s *stat, now time.Duration) {
	p.listed = t.sweeps
	p.reading.took(s, now)
	state := p.stateOf(s)
	if state != p.view.State {
		t.changed = true
	}
	other := p.mayBeOther(s, now)
	p.view.State, p.view.PPID, p.view.Comm, p.view.Traced = state, s.ppid, s.comm, s.state == 't'
	p.view.Age = max(0, now-p.view.Born)
	if s.startCode > 1 {
		p.visible = true
	}
	switch {
	case state == checks.ProcZombie:
		if !p.dead {
			o.died(t, p, s, now)
		}
		return
	}
	if p.told.at < t.began {
		p.told = told{} // it lives: a thread gave its pid to another by execve(2)
	}
	switch {
	case p.view.Age < settled:
		return
	case p.view.Exe == "":
		p.view.Exe = o.kernel.fs.exe(s.pid)
	case other:
		p.exeAt = now
		if exe := o.kernel.fs.exe(s.pid); exe != "" && exe != p.view.Exe {
			p.view.Exe, p.view.ExeChanged = exe, true
			t.record(Event{Kind: ExeChanged, Process: p.view.ID, Comm: s.comm, Born: p.view.Born, At: now})
		}
	}
}

// died records a death, once. zombie is its last stat, or nil if it is gone.
func (o *Observer) died(t *target, p *proc, zombie *stat, now time.Duration) {
	if p.dead {
		return
	}
	p.dead = true
	p.view.Listens = false
	e := Event{Kind: Death, Process: p.view.ID, Comm: p.view.Comm, Born: p.view.Born, At: now}
	if p == t.main {
		e.Kind = MainDeath
	}
	if p.diedAt != 0 {
		e.At = min(now, p.diedAt)
	}
	told := t.end(p)
	if told.at != 0 {
		e.At = min(e.At, told.at)
	}
	switch {
	case zombie != nil && (p.visible || zombie.exitCode != 0):
		e.Exit = exitFromStatus(zombie.exitCode)
	case zombie == nil && p.pidfd >= 0:
		e.Exit = pidfdExit(p.pidfd)
	}
	if !e.Exit.Known {
		e.Exit = told.exit
	}
	t.record(e)
	t.lastExit = now
	if p == t.main {
		t.scan = backoff{}
	}
	o.stats.exits.Add(1)
}

// hidden reports that a pid exists of which /proc shows nothing (hidepid).
func (o *Observer) hidden(pid int) bool {
	if !o.kernel.pids {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// It may have exited between the look and the open, or been a zombie's pid
	// that was reaped since: a signal 0 to a reaped process says ESRCH.
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); gone(err) {
		return false
	}
	_, err = o.kernel.fs.stat(pid)
	return gone(err) && !gone(unix.PidfdSendSignal(fd, 0, nil, 0))
}

func hiddenTrouble(pid int) Trouble {
	return Trouble{checks.ReasonNoPermission,
		fmt.Sprintf("pid %d exists but /proc hides it (hidepid): run the agent in the group of the mount's gid= option, or with CAP_SYS_PTRACE", pid)}
}

// blame records that we could not read, and on whose account.
func (t *target) blame(err error) {
	t.trouble = Trouble{checks.ReasonOwnLimit, err.Error()}
	if denied(err) {
		t.trouble.Reason = checks.ReasonNoPermission
	}
}
