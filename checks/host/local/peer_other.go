//go:build !linux

package local

import "net"

// peer is not told here.
func peer(net.Conn) int { return 0 }
