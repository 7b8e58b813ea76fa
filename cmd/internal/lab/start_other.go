//go:build !linux

package lab

import (
	"errors"
	"net/netip"
	"os"
)

// errLinux refuses: the lab is made of Linux's ways of sharing and losing a
// listening socket.
var errLinux = errors.New("it runs on Linux only")

func holdPort(addr netip.AddrPort, _ bool) (*os.File, netip.AddrPort, error) {
	return nil, addr, errLinux
}

func startProcess(string, string, []string) (*process, error) { return nil, errLinux }

func startStranger(string, []string) (*process, error) { return nil, errLinux }
