package lab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab/balancer"
)

// endLimit is how long main may take to end its workers. It needs some
// milliseconds; chosen: a starved machine's thousandfold.
const endLimit = 5 * time.Second

// start starts main. The caller reads its first answer.
func start(o Options) (*Lab, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	cmd := &exec.Cmd{
		Path: exe,
		Args: []string{
			balancer.MainArg, o.Listener, o.Addr.Addr().String(), strconv.Itoa(int(o.Addr.Port())),
			strconv.Itoa(o.Workers), o.Respawn.String(), o.PIDFile,
		},
		Env: []string{"TMPDIR=" + os.TempDir()},
		// A group of its own: Ctrl-C ends the one who started the lab, who ends
		// the lab in order.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	cmd.Stdout = outWriter
	err = cmd.Start()
	outWriter.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	l := &Lab{pid: cmd.Process.Pid, in: in, answers: bufio.NewScanner(out), done: make(chan struct{})}
	stopping := make(chan struct{})
	l.stop = sync.OnceFunc(func() {
		close(stopping)
		in.Close() // main reads the end of its input and ends
	})
	go l.reap(cmd, stopping, out)
	return l, nil
}

// reap waits for main's end and closes done. Once main has been told to end it
// has endLimit to do so.
func (l *Lab) reap(cmd *exec.Cmd, stopping <-chan struct{}, out *os.File) {
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended is of no interest: we asked, or Done tells
		close(exited)
	}()
	select {
	case <-exited:
	case <-stopping:
		select {
		case <-exited:
		case <-time.After(endLimit):
			cmd.Process.Kill() // workers die with it
			<-exited
		}
	}
	close(l.done)
	l.mu.Lock() // an answer is being read to its end
	out.Close()
	l.mu.Unlock()
}
