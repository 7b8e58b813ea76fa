//go:build linux

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a child of ours.
type process struct {
	pid  int
	done chan struct{}
}

// run starts a command with its output in a file and reaps it.
func run(cmd *exec.Cmd, output string) (*process, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	// Servers may open what limits allow, as in production. A group of its own:
	// what is typed at our terminal is for us.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		_ = cmd.Process.Kill() // without it nobody could wait for it
		return nil, errors.Join(fmt.Errorf("watch process %d: %w", p.pid, err), cmd.Wait())
	}
	go func() {
		awaitExit(pidfd)
		_ = cmd.Wait() // how it ended is told by its output, if anybody asks
		close(p.done)
	}()
	return p, nil
}

// awaitExit waits for a process's end without wait(2): should we trace it, wait
// would take its stops for the end, and from whoever traces it.
func awaitExit(pidfd int) {
	defer unix.Close(pidfd)
	for {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Children lists the living children of a process, of all its threads.
func Children(pid int) []int {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || pid <= 0 {
		return nil
	}
	var pids []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended
		}
		for _, f := range strings.Fields(string(raw)) {
			if child, err := strconv.Atoi(f); err == nil && Alive(child) {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Threads lists the threads of a process.
func Threads(pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// Alive reports whether a process exists and is no zombie.
func Alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// proc_pid_stat(5): the state follows the name, which stands in parentheses.
	rest := raw[strings.LastIndexByte(string(raw), ')')+1:]
	return len(rest) > 1 && rest[1] != 'Z' && rest[1] != 'X'
}
