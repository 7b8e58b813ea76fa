package host

import (
	"bytes"
	"errors"
)

// Connections is how many TCP connections one network namespace has taken.
type Connections struct {
	// NetNS is "host" for the namespace we are in; for another one the path that a
	// target in it declares, or else the name of the first target in it.
	NetNS string
	// Accepted counts those the kernel completed for a listener, since the
	// namespace began. Whether a process took them from the accept queue it does
	// not know.
	Accepted uint64
}

// ownNetNS is the label of the namespace we are in.
const ownNetNS = "host"

var errBadSNMP = errors.New("malformed /proc/net/snmp")

// parsePassiveOpens finds TCP's PassiveOpens in /proc/net/snmp (RFC 4022,
// tcpPassiveOpens): a line of names, then a line of values.
func parsePassiveOpens(b []byte) (uint64, error) {
	column := -1
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		switch {
		case len(fields) == 0 || string(fields[0]) != "Tcp:":
		case column < 0:
			for i, name := range fields {
				if string(name) == "PassiveOpens" {
					column = i
				}
			}
			if column < 0 {
				return 0, errBadSNMP
			}
		case column < len(fields):
			if n, ok := parseUint(fields[column]); ok {
				return n, nil
			}
			return 0, errBadSNMP
		}
	}
	return 0, errBadSNMP
}
