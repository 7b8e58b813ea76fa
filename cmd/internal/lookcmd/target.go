package lookcmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/host/local"
)

// parseListener reads ADDRESS:PORT or unix:PATH.
func parseListener(s string) (local.Listener, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if len(path) < 2 || path[0] != '/' && path[0] != '@' {
			return local.Listener{}, fmt.Errorf("%q is not unix: and an absolute path, or unix:@ and a name", s)
		}
		return local.Listener{Path: path}, nil
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return local.Listener{}, fmt.Errorf("%q is not an address and port such as 127.0.0.1:8080 or [::1]:443, nor unix:PATH", s)
	}
	return local.Listener{Addr: addr}, nil
}

// ways are what a person says of a main process.
type ways struct {
	pidFile, unit, cgroup, exe, cmdline string
	netNS                               string
	listeners                           []local.Listener
}

// target is what to observe. done removes what was made for it.
func (w ways) target() (t host.Target, done func(), err error) {
	t = host.Target{Name: targetName, PIDFile: w.pidFile, Unit: w.unit, Cgroup: w.cgroup, Exe: w.exe, Cmdline: w.cmdline, NetNS: w.netNS}
	named := 0
	for _, way := range []string{w.pidFile, w.unit, w.cgroup, w.exe + w.cmdline} {
		if way != "" {
			named++
		}
	}
	if named > 1 || named == 0 && len(w.listeners) == 0 {
		return t, nil, errors.New("name the main process in one way: --pidfile, --unit, --cgroup, --exe with or without --cmdline, or --port")
	}
	for _, l := range w.listeners {
		switch {
		case l.Path != "":
			t.UnixListeners = append(t.UnixListeners, l.Path)
		case named == 0 && !t.Port.IsValid():
			t.Port = l.Addr
		default:
			t.Listeners = append(t.Listeners, l.Addr)
		}
	}
	if named > 0 || t.Port.IsValid() {
		return t, func() {}, nil
	}
	return byUnixSocket(t)
}

// byUnixSocket finds main as the process that began to listen on the socket; the
// kernel tells it to whoever connects. There is none if nobody listens.
func byUnixSocket(t host.Target) (host.Target, func(), error) {
	l := local.New(local.Listener{Path: t.UnixListeners[0]}, local.Deps{})
	l.Look(time.Now(), local.Ask{})
	l.Wait()
	found, _ := l.Look(time.Now(), local.Ask{Every: time.Hour})
	dir, err := os.MkdirTemp("", "crosscheck")
	if err != nil {
		return t, nil, err
	}
	done := func() { _ = os.RemoveAll(dir) } // our own, in the temporary folder
	t.PIDFile = filepath.Join(dir, "who listens on "+filepath.Base(t.UnixListeners[0]))
	// Whoever holds it now, if that may be seen; else who began to listen, who may
	// have ended since, as a server's first process does.
	owner, err := host.OwnerOf(t.UnixListeners[0])
	if err != nil || owner == 0 {
		owner = found.Peer
	}
	if owner > 1 { // 1 is systemd, which listens on behalf of others
		if err := os.WriteFile(t.PIDFile, []byte(strconv.Itoa(owner)), 0o600); err != nil {
			done()
			return t, nil, err
		}
	}
	return t, done, nil
}

// findMain is how long main is looked for before its listeners are (chosen: a
// walk of all of /proc takes 0.1 s of CPU).
const findMain = 2 * time.Second

// withListeners adds the addresses on which the target's processes listen now, if
// a person named none, so that they can be shown and tried.
func withListeners(ctx context.Context, t host.Target) host.Target {
	if t.Port.IsValid() || len(t.Listeners)+len(t.UnixListeners) > 0 {
		return t
	}
	observer, err := host.New(host.Config{Targets: []host.Target{t}}, host.Deps{})
	if err != nil {
		return t // the look will say so
	}
	ctx, cancel := context.WithTimeout(ctx, findMain)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = observer.Run(ctx) // as in watchThenShow
	}()
	tick := time.NewTicker(host.FastEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if s, ok := observer.Snapshot(targetName); ok && s.Sweep > 0 {
			if s.Main.Status == host.MainAlive {
				t.Listeners = held(observer, &s)
			}
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	cancel()
	<-done
	return t
}

func held(o *host.Observer, s *host.Snapshot) (found []netip.AddrPort) {
	pids := []int{s.Main.Process.PID}
	for i := range s.Workers {
		pids = append(pids, s.Workers[i].PID)
	}
	_ = o.InNamespace(targetName, func() (err error) { // what may not be read is told by the look
		found, err = host.ListenersOf(pids...)
		return err
	})
	return found
}

// listenersOf are the listeners of a target.
func listenersOf(t host.Target) (out []local.Listener) {
	if t.Port.IsValid() {
		out = append(out, local.Listener{Addr: t.Port})
	}
	for _, a := range t.Listeners {
		out = append(out, local.Listener{Addr: a})
	}
	for _, p := range t.UnixListeners {
		out = append(out, local.Listener{Path: p})
	}
	return out
}
