package host

import "golang.org/x/sys/unix"

// OpenConnector opens what Run would, after Prepare.
func OpenConnector(o *Observer) { o.openConnector() }

// ReadConnector takes the events that wait.
func ReadConnector(o *Observer) { o.readConnector() }

// ShrinkConnector leaves room for a few events only.
func ShrinkConnector(o *Observer) {
	if err := unix.SetsockoptInt(o.connector.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the kernel's least
		panic(err)
	}
}

// PassAll lets the events of every process pass, as with too many mains.
func PassAll(o *Observer) {
	if err := o.connector.attach(nil, true, true); err != nil {
		panic(err)
	}
}
