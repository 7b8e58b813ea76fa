package balancer

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// command does what one line says and returns the answer.
func (b *balancer) command(line string) []byte {
	name, rest := cutByte(line, ' ')
	host, backend := cutByte(rest, ' ')
	var err error
	switch name {
	case CmdAddRoute:
		err = b.addRoute(host, backend)
	case CmdRemoveRoute:
		err = b.removeRoute(host)
	case CmdShutListeners:
		err = b.silence("shut")
	case CmdClose:
		err = b.closeListeners()
	case CmdReopen:
		err = b.reopen()
	case CmdReload:
		err = b.replaceWorkers()
	case CmdKillOnce:
		err = b.signal(host, syscall.SIGKILL)
	case CmdFreeze:
		err = b.signal(host, syscall.SIGSTOP)
	case CmdThaw:
		for c := range b.living {
			c.process.Signal(syscall.SIGCONT)
		}
	case CmdStatus:
		return b.status()
	case CmdQuit:
		b.end()
		say([]byte("{\"ok\":true}\n"))
		syscall.Exit(0)
	default:
		err = errors.New("unknown command " + name)
	}
	if err != nil {
		return refusal(err)
	}
	return []byte("{\"ok\":true}\n")
}

// addRoute puts a hostname into the state and pushes it to every worker. Main
// checks nothing, as Sōzu's did not: that is the fault.
func (b *balancer) addRoute(host, backend string) error {
	if host == "" {
		return errors.New("add-route: which host?")
	}
	route := message{{"op", "add"}, {"host", host}, {"backend", backend}}
	b.forget(host)
	b.routes = append(b.routes, route)
	b.push(route)
	return nil
}

func (b *balancer) removeRoute(host string) error {
	if !b.forget(host) {
		return errors.New("remove-route: no route for " + host)
	}
	b.push(message{{"op", "remove"}, {"host", host}})
	return nil
}

// forget drops host from the state and reports whether it was there.
func (b *balancer) forget(host string) bool {
	for i, r := range b.routes {
		if r.get("host") == host {
			b.routes = append(b.routes[:i:i], b.routes[i+1:]...)
			return true
		}
	}
	return false
}

func (b *balancer) push(m message) {
	for _, s := range b.slots {
		if s.child != nil {
			s.child.tell(m...)
		}
	}
}

// signal sends a signal to the worker with the process id in text, or to every
// one if there is none.
func (b *balancer) signal(text string, sig syscall.Signal) error {
	sent := false
	for _, s := range b.slots {
		if s.child == nil || text != "" && text != strconv.Itoa(s.child.process.Pid) {
			continue
		}
		if err := s.child.process.Signal(sig); err != nil {
			return err
		}
		sent = true
	}
	if text != "" && !sent {
		return errors.New("no worker in service is process " + text)
	}
	return nil
}

// closeListeners closes every listening socket, ours too: nobody is bound to
// the port any more.
func (b *balancer) closeListeners() error {
	if err := b.silence("close"); err != nil || b.kind == Reuseport {
		return err
	}
	err := b.socket.Close()
	b.socket = nil
	return err
}

// silence has every worker shut or close its listening socket and waits until
// each has, or has died.
func (b *balancer) silence(op string) error {
	var asked []*child
	for _, s := range b.slots {
		if s.child != nil {
			s.child.shut = false
			s.child.tell(field{"op", op})
			asked = append(asked, s.child)
		}
	}
	all := func() bool {
		for _, c := range asked {
			if !c.shut && !c.dead {
				return false
			}
		}
		return true
	}
	if !b.wait(shutLimit, all) {
		return errors.New(op + " listeners: not every worker did within " + shutLimit.String())
	}
	return nil
}

// reopen opens new listeners and replaces the workers, as an operator's
// restart would. A socket that was shut could be told to listen again, but
// only its own process could do that, and a broken one would not.
func (b *balancer) reopen() error {
	if b.kind == Reuseport {
		return b.replaceWorkers() // each new one binds its own
	}
	fd, err := listen(&b.at, false)
	if err != nil {
		return err // the old one still listens
	}
	old := b.socket
	b.socket = os.NewFile(uintptr(fd), "port")
	if err := b.replaceWorkers(); err != nil {
		b.socket.Close()
		b.socket = old
		return err
	}
	if old == nil { // it was closed
		return nil
	}
	return old.Close()
}

// replaceWorkers starts as many new workers as there are slots, waits until
// all are ready and only then tells the old ones to drain. If a new one dies
// first, the old ones stay.
func (b *balancer) replaceWorkers() error {
	next := make([]*child, 0, len(b.slots))
	var err error
	for range b.slots {
		var c *child
		if c, err = b.spawn(); err != nil {
			break
		}
		next = append(next, c)
	}
	count := func(is func(*child) bool) (n int) {
		for _, c := range next {
			if is(c) {
				n++
			}
		}
		return n
	}
	died := func(c *child) bool { return c.dead }
	ready := func(c *child) bool { return c.ready && !c.dead }
	if err == nil {
		b.wait(startLimit, func() bool { return count(died) > 0 || count(ready) == len(next) })
		if count(ready) < len(next) {
			err = errors.New("reload: the new workers did not become ready; the old ones stay")
		}
	}
	if err != nil {
		for _, c := range next {
			c.process.Kill()
		}
		return err
	}
	for i, s := range b.slots {
		b.slots[i] = slot{child: next[i]}
		if s.child != nil {
			s.child.draining = true
			b.draining++
			s.child.tell(field{"op", "drain"})
		}
	}
	return nil
}

// status is what Lab.Status decodes.
func (b *balancer) status() []byte {
	out := append([]byte(nil), `{"ok":true,"main":`...)
	out = strconv.AppendInt(out, int64(os.Getpid()), 10)
	out = append(out, `,"listener":`...)
	out = appendString(out, string(b.kind))
	out = append(out, `,"addr":`...)
	out = appendString(out, b.at.String())
	out = append(out, `,"pid_file":`...)
	out = appendString(out, b.pidFile)
	out = append(out, `,"workers":[`...)
	first := true
	for _, s := range b.slots {
		if s.child == nil {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, `{"pid":`...)
		out = strconv.AppendInt(out, int64(s.child.process.Pid), 10)
		out = append(out, `,"ready":`...)
		out = append(strconv.AppendBool(out, s.child.ready), '}')
	}
	out = append(out, ']')
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"draining", int64(b.draining)},
		{"routes", int64(len(b.routes))},
		{"births", int64(b.births)},
		{"deaths", int64(b.deaths)},
		{"respawn_ms", b.respawn.Milliseconds()},
		{"dead_workers_cpu_us", deadWorkersCPU()},
	} {
		out = append(out, `,"`+n.name+`":`...)
		out = strconv.AppendInt(out, n.value, 10)
	}
	return append(out, '}', '\n')
}

// deadWorkersCPU is the CPU time that workers have used which are dead now, in
// microseconds: what a crash loop costs.
func deadWorkersCPU() int64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) != nil {
		return 0
	}
	return (used.Utime.Nano() + used.Stime.Nano()) / 1000
}

// refusal is the answer to what could not be done.
func refusal(err error) []byte {
	out := append([]byte(nil), `{"ok":false,"error":`...)
	return append(appendString(out, err.Error()), '}', '\n')
}
