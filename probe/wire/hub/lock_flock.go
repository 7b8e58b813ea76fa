//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package hub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockDir takes the lock that keeps a second server off the store: NATS takes
// none. The lock is on the directory itself, which nobody deletes by mistake; the
// file in it only says who holds it. The kernel releases the lock when the holder
// dies, however it dies.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer d.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s is held by process %s; stop it or choose another directory", ErrInUse, dir, holder(path))
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		d.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return d, nil
}

// holder returns the pid the lock's holder wrote.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}
