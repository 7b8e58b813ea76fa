package host

import (
	"os"
	"path/filepath"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// configEvery is how often the declared configuration files are looked at,
// besides after each birth and death; chosen: a ticket, not a page, hangs on them.
const configEvery = 5 * time.Second

// lookConfig finds out whether a declared configuration file is newer than all
// that could have read it. A file that may not be seen, or whose time was set
// back (cp -p, rsync -t), is not found so.
func (o *Observer) lookConfig(t *target, now time.Duration) {
	if len(t.cfg.ConfigFiles) == 0 || t.configAt != 0 && now-t.configAt < configEvery && t.configSeq == t.seq {
		return
	}
	t.configAt, t.configSeq = now, t.seq
	was := t.staleFile
	t.staleFile, t.staleSince = "", 0
	if t.status != MainAlive {
		return
	}
	// Born is a lower bound, one tick at most too early.
	loaded := t.main.view.Born
	for _, p := range t.kids {
		if p.view.State == checks.ProcAlive || p.view.State == checks.ProcStopped {
			loaded = max(loaded, p.view.Born)
		}
	}
	boot := time.Now().Add(-BootTime())
	for _, pattern := range t.cfg.ConfigFiles {
		files, _ := filepath.Glob(pattern) // Validate has tried it
		for _, file := range files {
			fi, err := os.Stat(file)
			if err != nil || !fi.Mode().IsRegular() {
				continue
			}
			written := fi.ModTime().Sub(boot)
			if written > loaded+tick && (t.staleFile == "" || written < t.staleSince) {
				t.staleFile, t.staleSince = file, written
			}
		}
	}
	t.changed = t.changed || was != t.staleFile
}
