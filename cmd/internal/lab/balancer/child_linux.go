package balancer

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

// slot is a worker's place. A dead worker leaves it empty until due.
type slot struct {
	child *child
	due   time.Time
}

// child is one worker as main sees it.
type child struct {
	process  *os.Process
	in       *os.File
	ready    bool
	shut     bool
	dead     bool
	draining bool
}

// event is what a child said, or "exit".
type event struct {
	child *child
	what  string
}

// spawn starts a worker and replays the whole state to it.
func (b *balancer) spawn() (*child, error) {
	if b.kind == Shared && b.socket == nil {
		return nil, errors.New("start worker: the shared socket is closed")
	}
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourIn.Close()
		return nil, err
	}
	files := []*os.File{theirIn, theirOut, b.devNull}
	if b.kind == Shared {
		files = append(files, b.socket) // becomes sharedFD
	}
	// One P is all a worker needs, and 2 ms CPU cheaper to start. And whoever
	// has it keeps it until he is done, as in a server with one event loop:
	// nothing else of the worker runs while one request runs in circles.
	env := []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"}
	process, err := os.StartProcess(b.exe, []string{WorkerArg, string(b.kind), b.at.address(), strconv.Itoa(b.at.port)}, &os.ProcAttr{
		Files: files, Env: env,
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		ourIn.Close()
		ourOut.Close()
		return nil, errors.New("start worker: " + err.Error())
	}
	b.births++
	c := &child{process: process, in: ourIn}
	b.living[c] = true
	go b.follow(c, ourOut)
	for _, route := range b.routes {
		c.tell(route...)
	}
	c.tell(field{"op", "serve"})
	return c, nil
}

// follow passes on what a child says, then that it has exited. The child is
// reaped before main hears of its exit.
func (b *balancer) follow(c *child, out *os.File) {
	var said lines
	buf := make([]byte, 512)
	for {
		n, err := out.Read(buf)
		said.feed(buf[:n], func(line string) {
			if m, err := parseMessage(line); err == nil {
				b.events <- event{c, m.get("event")}
			}
		})
		if err != nil {
			break
		}
	}
	out.Close()
	c.process.Wait()
	b.events <- event{c, "exit"}
}

// tell sends a message. A child that does not take it is dead or will be
// killed by what follows; its exit is heard of in its own way.
func (c *child) tell(fields ...field) {
	c.in.SetWriteDeadline(time.Now().Add(time.Second))
	c.in.Write(appendMessage(nil, fields))
}
