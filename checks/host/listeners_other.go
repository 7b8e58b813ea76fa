//go:build !linux

package host

import "net/netip"

// ListenersOf finds nothing here.
func ListenersOf(string) ([]netip.AddrPort, error) { return nil, nil }
