//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// cgroupMount is where the control groups are.
const cgroupMount = "/sys/fs/cgroup"

// group is a control group of our own.
type group struct {
	path    string
	unified bool
}

// newGroup makes a group for one controller, or finds it made.
func newGroup(controller, name string) (group, error) {
	g := group{path: filepath.Join(cgroupMount, controller, name)}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		g = group{path: filepath.Join(cgroupMount, name), unified: true}
		// The root may give it to its children already.
		_ = os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
	if err := os.Mkdir(g.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return g, fmt.Errorf("make control group: %w", err)
	}
	return g, nil
}

func (g group) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(g.path, file), []byte(value), 0); err != nil {
		return fmt.Errorf("set control group: %w", err)
	}
	return nil
}

func (g group) add(pids ...int) error {
	for _, pid := range pids {
		if err := g.set("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

func (g group) limitMemory(bytes int) error {
	if g.unified {
		return g.set("memory.max", strconv.Itoa(bytes))
	}
	return g.set("memory.limit_in_bytes", strconv.Itoa(bytes))
}

// favour gives the group most of the CPU: ten times what a group has that was
// told nothing.
func (g group) favour() error {
	if g.unified {
		return g.set("cpu.weight", "1000")
	}
	return g.set("cpu.shares", "10240")
}

// removeGroups removes what a cell made. Its processes are gone; the kernel may
// need a moment to see that.
func removeGroups(name string) error {
	var failed error
	for _, path := range []string{filepath.Join(cgroupMount, "memory", name), filepath.Join(cgroupMount, "cpu", name), filepath.Join(cgroupMount, name)} {
		for range 100 {
			if failed = os.Remove(path); failed == nil || errors.Is(failed, fs.ErrNotExist) {
				failed = nil
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}
