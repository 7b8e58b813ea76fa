//go:build !linux

package heartbeat

import "net"

// passCredentials does nothing: workers are told apart by the names they give.
func passCredentials(*net.UnixConn) error { return nil }

func sender([]byte) int { return 0 }
