package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Rhythm of a snapshotter. Chosen: old entries cost only bytes, and a full disk
// is tried again often enough to be seen mended.
const (
	gcEvery       = 15 * time.Minute
	retryInterval = 5 * time.Second
)

// snapshotted is what Alertmanager's notification log and silences have in common.
type snapshotted interface {
	Snapshot(w io.Writer) (int64, error)
	GC() (int, error)
	SetBroadcast(func([]byte))
}

// snapshotter writes one state file right after each change. Changes that come
// while a write is in flight are covered by the next one: there is one write at
// a time and never more writes than changes. Nothing changes, nothing is written.
type snapshotter struct {
	path    string
	state   snapshotted
	log     *slog.Logger
	written prometheus.Counter
	failed  prometheus.Counter
	dirty   chan struct{} // capacity 1
	stop    chan struct{}
	stopped chan struct{}
}

// newSnapshotter watches state from now on. SetBroadcast is Alertmanager's own
// hook on every change of the state, made for gossip; it is called with the
// state's lock held, so it only leaves a mark.
func newSnapshotter(path string, state snapshotted, log *slog.Logger, reg prometheus.Registerer) (*snapshotter, error) {
	labels := prometheus.Labels{"file": filepath.Base(path)}
	s := &snapshotter{
		path:  path,
		state: state,
		log:   log.With("file", path),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "crosscheck_alertmanager_snapshots_total",
			Help:        "Snapshots of the embedded Alertmanager's state written to disk.",
			ConstLabels: labels,
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "crosscheck_alertmanager_snapshot_errors_total",
			Help:        "Snapshots of the embedded Alertmanager's state that could not be written.",
			ConstLabels: labels,
		}),
		dirty:   make(chan struct{}, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	for _, c := range []prometheus.Collector{s.written, s.failed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register snapshot metrics: %w", err)
		}
	}
	state.SetBroadcast(func([]byte) { s.mark() })
	return s, nil
}

func (s *snapshotter) mark() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// run writes until close is called, and once more then.
func (s *snapshotter) run() {
	defer close(s.stopped)
	gc := time.NewTicker(gcEvery)
	defer gc.Stop()
	var retry <-chan time.Time
	for {
		select {
		case <-s.stop:
			s.write()
			return
		case <-gc.C:
			if n, err := s.state.GC(); err != nil {
				s.log.Error("cannot drop old entries", "err", err)
			} else if n == 0 {
				continue
			}
		case <-s.dirty:
		case <-retry:
		}
		retry = nil
		if !s.write() {
			retry = time.After(retryInterval)
		}
	}
}

// close writes the last snapshot and returns when it is on disk.
func (s *snapshotter) close() {
	close(s.stop)
	<-s.stopped
}

func (s *snapshotter) write() bool {
	if err := replaceFile(s.path, s.state.Snapshot); err != nil {
		s.failed.Inc()
		s.log.Error("cannot write snapshot: a crash now may repeat notifications or forget silences; check the disk", "err", err)
		return false
	}
	s.written.Inc()
	return true
}

// replaceFile puts what write writes in place of path, whole or not at all, also
// over a power cut: temporary file, fsync, rename, fsync of the directory.
func replaceFile(path string, write func(io.Writer) (int64, error)) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	if _, err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// readState returns what a state file holds, or nothing. A file that decode
// refuses is moved aside: forgetting what was sent may repeat a page, refusing
// to start would lose one.
func readState(path string, decode func(io.Reader) error, log *slog.Logger) (io.Reader, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return bytes.NewReader(nil), nil
	}
	if err != nil {
		return nil, err
	}
	broken := decode(bytes.NewReader(content))
	if broken == nil {
		return bytes.NewReader(content), nil
	}
	aside := fmt.Sprintf("%s.corrupt-%s", path, time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("move corrupt file aside: %w", err)
	}
	log.Error("state file is corrupt; moved aside, starting without it: notifications may repeat or silences be missing",
		"file", path, "moved_to", aside, "err", broken)
	return bytes.NewReader(nil), nil
}
