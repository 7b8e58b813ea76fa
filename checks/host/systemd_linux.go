package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	// busAgain is when a bus that could not be reached, or was lost, is tried
	// again; unitAgain when units are asked although nothing told of a change.
	// busPatience is how long one answer may take. All chosen.
	busAgain    = 30 * time.Second
	unitAgain   = 30 * time.Second
	busPatience = 5 * time.Second
	// unansweredSweeps is how many sweeps of a target wait for the first answer of
	// a bus, lest main be found twice; chosen: some seconds.
	unansweredSweeps = 5

	systemdName   = "org.freedesktop.systemd1"
	propertiesGet = "org.freedesktop.DBus.Properties.Get"
)

// unitState is what systemd says of one unit (org.freedesktop.systemd1(5)).
type unitState struct {
	mainPID int    // 0 if it has none
	active  string // ActiveState: "active", "failed", "activating" ...
	sub     string // SubState: "running", "auto-restart" ...
	result  string // how the last run ended: "success", "start-limit-hit" ...
}

// systemd asks the manager of this host about units, and is told when they
// change. run owns the connection; state may be asked from any goroutine.
type systemd struct {
	address string // empty: the system bus
	log     *slog.Logger
	units   map[string]*atomic.Pointer[unitState] // nil within: not known
	tried   atomic.Bool                           // the bus was reached once, or was not
}

// newSystemd is one for the units of some targets; nil if none has any.
func newSystemd(targets []Target, deps Deps, log *slog.Logger) *systemd {
	s := &systemd{address: deps.SystemBus, log: log, units: map[string]*atomic.Pointer[unitState]{}}
	for _, t := range targets {
		if t.Unit != "" {
			s.units[t.Unit] = &atomic.Pointer[unitState]{}
		}
	}
	if len(s.units) == 0 {
		return nil
	}
	return s
}

// state is what is known of a unit; ok is false while the bus does not answer.
func (s *systemd) state(unit string) (st unitState, ok bool) {
	p := s.units[unit].Load()
	if p == nil {
		return unitState{}, false
	}
	return *p, true
}

// run keeps the units' states until ctx ends.
func (s *systemd) run(ctx context.Context) {
	loud := true
	for ctx.Err() == nil {
		err := s.session(ctx, func() { loud = true })
		s.tried.Store(true)
		for _, p := range s.units {
			p.Store(nil)
		}
		if ctx.Err() != nil {
			return
		}
		if loud {
			s.log.Info("systemd cannot be asked for units: their control groups are read instead", "error", err)
			loud = false
		}
		select {
		case <-ctx.Done():
		case <-time.After(busAgain):
		}
	}
}

// session is one connection to the bus.
func (s *systemd) session(ctx context.Context, answered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	connect := dbus.ConnectSystemBus
	if s.address != "" {
		connect = func(o ...dbus.ConnOption) (*dbus.Conn, error) { return dbus.Connect(s.address, o...) }
	}
	conn, err := connect(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	manager := conn.Object(systemdName, "/org/freedesktop/systemd1")
	if err := call(ctx, manager, systemdName+".Manager.Subscribe").Err; err != nil {
		return fmt.Errorf("subscribe to units: %w", err)
	}
	paths := map[dbus.ObjectPath]string{}
	for unit := range s.units {
		path, err := s.watch(ctx, conn, unit)
		if err != nil && !conn.Connected() {
			return err
		}
		if err != nil { // systemd does not want this one; the others it may
			s.log.Warn("systemd does not tell of a unit: its control group is read instead", "unit", unit, "error", err)
			continue
		}
		paths[path] = unit
	}
	answered()
	s.tried.Store(true)
	return s.follow(ctx, conn, signals, paths)
}

// watch has systemd tell of the changes of a unit, and then asks what it is now:
// no change falls between.
func (s *systemd) watch(ctx context.Context, conn *dbus.Conn, unit string) (path dbus.ObjectPath, err error) {
	manager := conn.Object(systemdName, "/org/freedesktop/systemd1")
	if err := call(ctx, manager, systemdName+".Manager.LoadUnit", unit).Store(&path); err != nil {
		return "", fmt.Errorf("load unit %s: %w", unit, err)
	}
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(path), dbus.WithMatchMember("PropertiesChanged")); err != nil {
		return "", fmt.Errorf("watch unit %s: %w", unit, err)
	}
	return path, s.ask(ctx, conn, path, unit)
}

// follow asks a unit again when something of it changed, and all now and then.
func (s *systemd) follow(ctx context.Context, conn *dbus.Conn, signals <-chan *dbus.Signal, paths map[dbus.ObjectPath]string) error {
	again := time.NewTicker(unitAgain)
	defer again.Stop()
	for {
		select {
		case <-conn.Context().Done():
			return fmt.Errorf("the system bus hung up: %w", context.Cause(conn.Context()))
		case sig, ok := <-signals:
			if !ok {
				return dbus.ErrClosed
			}
			if unit, ours := paths[sig.Path]; ours {
				if err := s.ask(ctx, conn, sig.Path, unit); err != nil {
					return err
				}
			}
		case <-again.C:
			for path, unit := range paths {
				if err := s.ask(ctx, conn, path, unit); err != nil {
					return err
				}
			}
		}
	}
}

// ask reads what systemd says of a unit.
func (s *systemd) ask(ctx context.Context, conn *dbus.Conn, path dbus.ObjectPath, unit string) error {
	object := conn.Object(systemdName, path)
	var st unitState
	var pid uint32
	for _, p := range []struct {
		of, name string
		into     any
	}{
		{".Service", "MainPID", &pid}, {".Service", "Result", &st.result},
		{".Unit", "ActiveState", &st.active}, {".Unit", "SubState", &st.sub},
	} {
		var v dbus.Variant
		if err := call(ctx, object, propertiesGet, systemdName+p.of, p.name).Store(&v); err != nil {
			return fmt.Errorf("ask %s of unit %s: %w", p.name, unit, err)
		}
		if err := v.Store(p.into); err != nil {
			return fmt.Errorf("read %s of unit %s: %w", p.name, unit, err)
		}
	}
	st.mainPID = int(pid)
	s.units[unit].Store(&st)
	return nil
}

func call(ctx context.Context, object dbus.BusObject, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	return object.CallWithContext(ctx, method, 0, args...)
}

// mainByUnit finds main as the main process of a systemd unit: as systemd tells,
// else in the unit's control group.
func (o *Observer) mainByUnit(t *target, alive bool, now time.Duration) {
	name := "unit " + t.cfg.Unit
	st, ok := unitState{}, false
	if o.systemd != nil {
		st, ok = o.systemd.state(t.cfg.Unit)
	}
	if !ok && o.systemd != nil && !o.systemd.tried.Load() && t.sweeps < unansweredSweeps {
		t.missing(alive, "systemd was not asked yet")
		return
	}
	if !ok {
		t.gaveUp = false // nobody tells
		o.mainByGroup(t, func(h hierarchies) []string { return h.unitDirs(t.cfg.Unit) }, name, alive, now)
		return
	}
	t.gaveUp = st.result == "start-limit-hit"
	if alive && (st.mainPID == t.main.view.PID || st.mainPID == t.heirOf.PID && st.mainPID != 0) {
		o.obey(t, now)
		return
	}
	s, err := stat{}, error(nil)
	if st.mainPID != 0 {
		s, err = o.kernel.fs.stat(st.mainPID)
	}
	switch {
	case st.mainPID == 0:
		t.missing(alive, fmt.Sprintf("%s is %s (%s, %s), without a main process", name, st.active, st.sub, st.result))
	case gone(err) && o.hidden(st.mainPID):
		t.trouble = hiddenTrouble(st.mainPID)
		return
	case err != nil && !gone(err):
		t.blame(err)
		return
	case err != nil || !s.running() || t.main != nil && t.main.dead && t.main.view.ID == (ID{s.pid, s.start}):
		t.missing(alive, fmt.Sprintf("%s names pid %d, which has ended", name, st.mainPID))
	default:
		o.take(t, &s, now)
		return
	}
	if t.status == MainUnknown { // as with a pid file that names nobody
		t.status = MainGone
	}
}
