package heartbeat

import "time"

// SetClock lets a test tell the time; the wait begins anew.
func SetClock(c *Check, now func() time.Time) {
	c.now = now
	c.begin()
}

// Take takes a message as it came from the socket.
func Take(c *Check, b Beat) error { return c.take(b) }
