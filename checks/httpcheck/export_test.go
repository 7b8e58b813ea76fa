package httpcheck

import (
	"net"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Quote is the shell quoting of Repeat.
var Quote = quote

// SetResolver replaces the machine's resolver.
func (c *Check) SetResolver(r *net.Resolver) { c.dialer.Resolver = r }

// Unconnected judges attempts on 127.0.0.1:9 that ended with these errors.
func Unconnected(errs ...error) checks.Finding {
	var times timeline
	for _, err := range errs {
		times.attempts = append(times.attempts, attempt{"127.0.0.1:9", err})
	}
	return (&answer{at: times.stop()}).unconnected("no attempt")
}
