package httpcheck

import "net"

// Quote is the shell quoting of Repeat.
var Quote = quote

// SetResolver replaces the machine's resolver.
func (c *Check) SetResolver(r *net.Resolver) { c.dialer.Resolver = r }
