package workercheck

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

const (
	// mainYoung is the age under which a main that ends badly had not started yet,
	// until it is learnt how long it needs; chosen: most servers start within a
	// second or two. mainYoungMost is the most that is learnt (JUDGING section 3,
	// P10: the start deadline).
	mainYoung     = 5 * time.Second
	mainYoungMost = 60 * time.Second
	// oomWithin is for how long a kill for memory counts (checks.WorkerFacts).
	oomWithin = time.Minute
	// oomKept bounds the kills remembered; chosen: a page needs no more digits.
	oomKept = 1000
)

// mains is what outlives a generation: how mains ended, and how long one needs
// to start. The zero value is ready.
type mains struct {
	exit   string // how the last ended; empty if none has since one was well
	last   host.ID
	at     time.Duration // when last ended
	deaths int           // that ended badly and young, one after the other
	first  time.Duration
	start  time.Duration // learnt: from birth to the first serving worker; 0 if not yet
}

// ended takes the end of a main.
func (t *mains) ended(e *host.Event) {
	t.exit, t.last, t.at = e.Exit.String(), e.Process, e.At
	if e.Age() >= t.young() || !inside.Failed(e) && e.Exit.Known {
		t.deaths = 0
		return
	}
	if t.deaths++; t.deaths == 1 {
		t.first = e.At
	}
}

// young is the age under which a main had not started: twice what it needs.
func (t *mains) young() time.Duration { return min(max(mainYoung, 2*t.start), mainYoungMost) }

// serves says that the main serves, at first sight of the generation if fresh.
func (t *mains) serves(s *host.Snapshot, since time.Duration, fresh bool) {
	main := &s.Main.Process
	if fresh && since-main.Born < mainYoung {
		t.start = s.At - main.Born
	}
	if s.Main.Status == host.MainAlive && s.At-main.Born >= t.young() {
		t.exit, t.deaths = "", 0
	}
}

// fill tells of the mains before this one, and of this one's end.
func (t *mains) fill(f *checks.WorkerFacts, now time.Duration) {
	f.MainExit, f.MainDeaths = t.exit, t.deaths
	if t.deaths > 0 {
		f.MainLoopFor = max(0, now-t.first)
	}
}

// ooms follows a control group's count of processes killed for memory. The zero
// value is ready.
type ooms struct {
	cgroup string
	count  uint64
	known  bool
	at     []time.Duration // of each kill in the last minute
}

// take takes the count in a snapshot. The first is a beginning, no news.
func (t *ooms) take(s *host.Snapshot) {
	if s.OOMUnknown || s.Cgroup == "" {
		t.known = false
		return
	}
	if t.known && t.cgroup == s.Cgroup {
		for n := t.count; n < s.OOMKills && len(t.at) < oomKept; n++ {
			t.at = append(t.at, s.At)
		}
	}
	t.cgroup, t.count, t.known = s.Cgroup, s.OOMKills, true
}

// recent counts the kills of the last minute.
func (t *ooms) recent(now time.Duration) int {
	old := 0
	for old < len(t.at) && now-t.at[old] > oomWithin {
		old++
	}
	t.at = t.at[old:]
	return len(t.at)
}
