//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// job is what a cell's process is told.
type job struct {
	Cell cellID
	// Dir is the cell's own folder; Group names its control groups. The parent
	// makes and removes both.
	Dir, Group string
}

// runJob runs one cell in namespaces of its own: network, so that ports and our
// own looks are its alone; processes, so that whatever happens nothing of it
// outlives it; mounts, for a /proc that shows those processes.
func runJob(ctx context.Context, j job) (result, error) {
	raw, err := json.Marshal(j)
	if err != nil {
		return result{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(exe, roleInit, string(raw))
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL, // with the first process of its namespace, all of it ends
		Setpgid:    true,         // Ctrl-C is for us; we end it in order
	}
	if err := cmd.Start(); err != nil {
		return result{}, fmt.Errorf("start namespaces (this needs root): %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return result{}, context.Cause(ctx)
	}
	var r result
	if decodeErr := json.Unmarshal(out.Bytes(), &r); decodeErr != nil {
		return result{}, errors.Join(err, fmt.Errorf("the cell gave no result: %s", strings.TrimSpace(head(errs.String(), 64<<10))))
	}
	return r, nil
}

func head(s string, n int) string { return s[:min(len(s), n)] }

// initMain is the first process of a cell's namespaces: it makes them usable,
// runs the cell and reaps what the servers leave behind.
func initMain(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return err
	}
	child, err := os.StartProcess("/proc/self/exe", append([]string{"faults", roleCell}, args...),
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return fmt.Errorf("start the cell: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("reap: %w", err)
		case pid == child.Pid && status.ExitStatus() != 0:
			return fmt.Errorf("the cell ended with status %#x", status)
		case pid == child.Pid:
			return nil // the kernel ends whatever else is there
		}
	}
}

// raiseLoopback brings lo up: a new network namespace has it down.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	return nil
}
