package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is one of our own: main, or the imposter. It is told one line at a
// time and answers each with one line.
type process struct {
	pid  int
	done chan struct{} // it has been reaped
	stop func()        // lets it end, at the latest by force
	kill func() error  // SIGKILL
	dir  string        // made for its executable; empty if there is none

	mu sync.Mutex
	// mu guards the fields below.
	in      io.WriteCloser
	out     *os.File
	answers *bufio.Scanner
}

// endLimit is how long a process may take to end. Main needs some milliseconds
// for its workers; chosen: a starved machine's thousandfold.
const endLimit = 5 * time.Second

// follow makes a process of a command that has started.
func follow(cmd *exec.Cmd, in io.WriteCloser, out *os.File) *process {
	p := &process{
		pid: cmd.Process.Pid, done: make(chan struct{}), kill: cmd.Process.Kill,
		in: in, out: out, answers: bufio.NewScanner(out),
	}
	stopping := make(chan struct{})
	p.stop = sync.OnceFunc(func() {
		close(stopping)
		in.Close() // it reads the end of its input and ends
	})
	go p.reap(cmd, stopping)
	return p
}

// reap waits for the process's end and closes done. Once it has been told to
// end it has endLimit to do so.
func (p *process) reap(cmd *exec.Cmd, stopping <-chan struct{}) {
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended is of no interest: we asked, or done tells
		close(exited)
	}()
	select {
	case <-exited:
	case <-stopping:
		select {
		case <-exited:
		case <-time.After(endLimit):
			cmd.Process.Kill() // workers die with main
			<-exited
		}
	}
	close(p.done)
	p.mu.Lock() // an answer is being read to its end
	p.out.Close()
	p.mu.Unlock()
}

// end ends the process and waits for it. It leaves nothing behind, even if it
// was killed by force.
func (p *process) end() {
	p.stop()
	<-p.done
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

func (p *process) command(line string) (Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return Status{}, err
	}
	return p.readLocked()
}

// read reads the answer that comes without a command, at the start.
func (p *process) read() (Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readLocked()
}

// errGone says that a process ended instead of answering.
var errGone = errors.New("it has ended")

func (p *process) readLocked() (Status, error) {
	if !p.answers.Scan() {
		return Status{}, errGone
	}
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
		Status
	}
	if err := json.Unmarshal(p.answers.Bytes(), &answer); err != nil {
		return Status{}, errors.New("decode answer: " + err.Error())
	}
	if !answer.OK {
		return Status{}, errors.New(answer.Error)
	}
	return answer.Status, nil
}
