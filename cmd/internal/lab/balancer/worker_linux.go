package balancer

import (
	"strconv"
	"syscall"
	"time"
)

// worker is one worker process. Its first goroutine obeys main; the others
// serve.
type worker struct {
	kind   Listener
	at     endpoint
	routes table
	server server
	closed bool // the listening socket; its number may be another's now
}

// sharedFD is where main puts the shared socket: after stdin, stdout, stderr.
const sharedFD = 3

// runWorker is the life of a worker: insert the state, listen, serve. It ends
// with exit status 0 after a drain and when main has gone.
func runWorker(args []string) int {
	setName("lab-worker")
	if len(args) != 3 {
		return 2
	}
	at, err := parseEndpoint(args[1], args[2])
	if err != nil {
		return 2
	}
	w := &worker{kind: Listener(args[0]), at: at}
	w.server.name = "hello from worker " + strconv.Itoa(syscall.Getpid())
	w.server.backend = w.routes.backend
	var in lines
	buf := make([]byte, 4096)
	for {
		n, err := syscall.Read(0, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return 0 // main has gone
		}
		in.feed(buf[:n], w.obey)
	}
}

// obey does what main says. Anything that cannot be done ends the worker: main
// starts another.
func (w *worker) obey(line string) {
	m, err := parseMessage(line)
	if err != nil {
		syscall.Exit(3)
	}
	switch m.get("op") {
	case "add":
		w.routes.insert(m.get("host"), m.get("backend"))
	case "remove":
		w.routes.remove(m.get("host"))
	case "serve":
		w.serve()
	case "shut":
		// On a listening socket this takes it out of LISTEN for every process
		// that holds it; the descriptor and the bound port stay. ENOTCONN: a
		// sibling was faster.
		if !w.closed {
			syscall.Shutdown(w.server.fd, syscall.SHUT_RDWR)
		}
		tellMain("shut")
	case "close":
		w.closed = true
		w.server.file.Close()
		tellMain("shut")
	case "drain":
		w.server.drain(w.kind == Reuseport && !w.closed, drainLimit)
		syscall.Exit(0)
	}
}

// drainLimit is how long an old worker waits for its connections. Chosen: ten
// times what a healthy client takes; a lab must not keep processes for long.
const drainLimit = 10 * time.Second

func (w *worker) serve() {
	fd := sharedFD
	if w.kind == Reuseport {
		var err error
		if fd, err = listen(&w.at, true); err != nil {
			syscall.Exit(4)
		}
	}
	syscall.CloseOnExec(fd)
	w.server.start(fd)
	tellMain("ready")
}

// tellMain writes one event. If main does not read any more, it is dead and so
// are we.
func tellMain(event string) {
	syscall.Write(1, appendMessage(nil, message{{"event", event}}))
}
