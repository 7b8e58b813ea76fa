//go:build !linux

package lab

import "errors"

// start refuses: the lab is made of Linux's ways of sharing and losing a
// listening socket.
func start(Options) (*Lab, error) {
	return nil, errors.New("start lab: it runs on Linux only")
}
