//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package hub

import (
	"errors"
	"os"
)

// lockDir refuses: without a lock the kernel gives back when the holder dies,
// two servers could share a store.
func lockDir(string) (*os.File, error) {
	return nil, errors.New("this operating system has no flock; run the core on another")
}
