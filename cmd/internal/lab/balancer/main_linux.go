package balancer

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

// balancer is the main process. One goroutine, the process's first, owns it
// all: workers are told to die with the thread that started them
// (PR_SET_PDEATHSIG), and that thread lives as long as the process.
type balancer struct {
	kind    Listener
	at      endpoint
	respawn time.Duration
	pidFile string
	doomed  bool // must die before it serves
	exe     string

	socket   *os.File // Shared: the listening socket. Reuseport: bound only, keeps the port ours
	devNull  *os.File
	routes   []message // the state, in the order in which it is replayed
	slots    []slot
	living   map[*child]bool // in a slot, draining, or killed and not yet reaped
	births   int
	deaths   int
	draining int

	events   chan event
	commands chan string
	gone     chan struct{} // our parent has left
}

// How long a command may take before it is answered with an error. Chosen: a
// worker is ready in 10 ms; a starved machine is a hundred times slower.
const (
	startLimit = 10 * time.Second
	shutLimit  = 2 * time.Second
)

// runMain is the life of main. It returns only if it could not start; after
// that it ends by quit, or when its parent is gone.
func runMain(args []string) int {
	setName("lab-main")
	ignoreHangup()
	b, err := newBalancer(args)
	if err == nil && b.doomed {
		err = b.die()
	}
	if err == nil {
		err = b.open()
	}
	if err == nil {
		err = b.start()
	}
	if err != nil {
		if b != nil {
			b.end()
		}
		say(refusal(err))
		return 1
	}
	say(b.status())
	b.run()
	return 0
}

// doomedLife is how long a doomed main lives. Chosen: the time a real one needs
// to read its configuration and find that it cannot go on.
const doomedLife = 100 * time.Millisecond

// die writes the pid file, as a main does that finds out later, and aborts.
func (b *balancer) die() error {
	if err := b.writePIDFile(); err != nil {
		return err
	}
	time.Sleep(doomedLife)
	abort()
	return nil
}

// newBalancer reads the arguments: kind, address, port, workers, respawn, pid
// file, and Doomed or nothing. The caller is our own client; it has validated
// them.
func newBalancer(args []string) (*balancer, error) {
	if len(args) != 7 {
		return nil, errors.New("start lab: want 7 arguments, got " + strconv.Itoa(len(args)))
	}
	at, err := parseEndpoint(args[1], args[2])
	if err != nil {
		return nil, err
	}
	workers, err := strconv.Atoi(args[3])
	if err != nil || workers < 1 {
		return nil, errors.New("start lab: " + args[3] + " workers")
	}
	respawn, err := time.ParseDuration(args[4])
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	devNull, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &balancer{
		kind: Listener(args[0]), at: at, respawn: respawn, pidFile: args[5], doomed: args[6] == Doomed, exe: exe, devNull: devNull,
		slots:  make([]slot, workers),
		living: map[*child]bool{},
		events: make(chan event), commands: make(chan string), gone: make(chan struct{}, 2),
	}, nil
}

// open takes the port and begins to listen to our parent.
func (b *balancer) open() error {
	fd, err := -1, error(nil)
	if b.kind == Shared {
		fd, err = listen(&b.at, false)
	} else {
		fd, err = bind(&b.at, true)
	}
	if err != nil {
		return err
	}
	b.socket = os.NewFile(uintptr(fd), "port")
	whenParentDies(func() { b.gone <- struct{}{} })
	go func() {
		var in lines
		buf := make([]byte, 4096)
		for {
			n, err := syscall.Read(0, buf)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				b.gone <- struct{}{}
				return
			}
			in.feed(buf[:n], func(line string) { b.commands <- line })
		}
	}()
	return nil
}

// start brings the first workers up and writes the pid file.
func (b *balancer) start() error {
	for i := range b.slots {
		child, err := b.spawn()
		if err != nil {
			return err
		}
		b.slots[i].child = child
	}
	ready := func() bool {
		for _, s := range b.slots {
			if s.child == nil || !s.child.ready {
				return false
			}
		}
		return true
	}
	if !b.wait(startLimit, ready) {
		return errors.New("start lab: workers not ready within " + startLimit.String())
	}
	return b.writePIDFile()
}

// run obeys commands and replaces dead workers until the process ends.
func (b *balancer) run() {
	for {
		select {
		case line := <-b.commands:
			say(b.command(line))
		case e := <-b.events:
			b.on(e)
		case <-b.nextRespawn():
			b.fill()
		case <-b.gone:
			b.end()
			syscall.Exit(0)
		}
	}
}

// wait is run without commands, until a condition holds or limit has passed.
func (b *balancer) wait(limit time.Duration, until func() bool) bool {
	end := time.After(limit)
	for !until() {
		select {
		case e := <-b.events:
			b.on(e)
		case <-b.nextRespawn():
			b.fill()
		case <-b.gone:
			b.end()
			syscall.Exit(0)
		case <-end:
			return until()
		}
	}
	return true
}

// on takes note of what a child said.
func (b *balancer) on(e event) {
	switch e.what {
	case "ready":
		e.child.ready = true
	case "shut":
		e.child.shut = true
	case "exit":
		e.child.dead = true
		delete(b.living, e.child)
		e.child.in.Close()
		b.deaths++
		if e.child.draining {
			b.draining--
		}
		for i := range b.slots {
			if b.slots[i].child == e.child {
				b.slots[i] = slot{due: time.Now().Add(b.respawn)}
			}
		}
	}
}

// nextRespawn ticks when the earliest empty slot is due; never, if none is.
func (b *balancer) nextRespawn() <-chan time.Time {
	var due time.Time
	for _, s := range b.slots {
		if s.child == nil && (due.IsZero() || s.due.Before(due)) {
			due = s.due
		}
	}
	if due.IsZero() {
		return nil
	}
	return time.After(time.Until(due))
}

// fill puts a new worker into every slot that is due: no back-off and no
// limit, as in the outage. If the machine refuses a process, the slot waits
// another turn.
func (b *balancer) fill() {
	for i, s := range b.slots {
		if s.child != nil || time.Until(s.due) > 0 {
			continue
		}
		child, err := b.spawn()
		b.slots[i] = slot{child: child}
		if err != nil {
			b.slots[i] = slot{due: time.Now().Add(b.respawn)}
		}
	}
}

// end kills every worker, waits for their exits and removes the pid file.
func (b *balancer) end() {
	for c := range b.living {
		c.process.Kill()
	}
	limit := time.After(shutLimit)
	for wait := true; wait && len(b.living) > 0; {
		select {
		case e := <-b.events:
			b.on(e)
		case <-limit: // they die with our first thread at the latest
			wait = false
		}
	}
	text, err := os.ReadFile(b.pidFile)
	if err == nil && string(text) == pidText() {
		os.Remove(b.pidFile)
	}
	if dir, ours := TempDirOf(b.pidFile); ours {
		os.Remove(dir)
	}
}

// writePIDFile writes our process id, whole or not at all.
func (b *balancer) writePIDFile() error {
	if b.pidFile == "" {
		dir, err := os.MkdirTemp("", tempPrefix)
		if err != nil {
			return err
		}
		b.pidFile = dir + "/lab.pid"
	}
	next := b.pidFile + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(next, []byte(pidText()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, b.pidFile)
}

func pidText() string { return strconv.Itoa(os.Getpid()) + "\n" }

// say writes one answer. Not through os.Stdout, which would end us by SIGPIPE
// before the workers are ended.
func say(line []byte) { syscall.Write(1, line) }
