package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// diag is a NETLINK_SOCK_DIAG socket in the network namespace in which it was
// opened. Owned by the run goroutine.
type diag struct {
	fd  int
	seq uint32
	buf []byte
	out []socket
	// unix lists unix sockets too.
	unix bool
}

func openDiag() (*diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	return &diag{fd: fd, buf: make([]byte, 32<<10)}, nil // 32 KiB: what the kernel fills per datagram at most
}

func (d *diag) close() { unix.Close(d.fd) }

// listening returns all LISTEN sockets, valid until the next call.
func (d *diag) listening() ([]socket, error) {
	d.out = d.out[:0]
	for _, family := range []byte{afINET, afINET6, afUnix} {
		if family == afUnix && !d.unix {
			continue
		}
		if err := d.dump(family); err != nil {
			return nil, err
		}
	}
	return d.out, nil
}

func (d *diag) dump(family byte) error {
	d.seq++
	if err := sendKernel(d.fd, listenRequest(family, d.seq)); err != nil {
		return fmt.Errorf("ask sock_diag: %w", err)
	}
	for {
		n, err := receiveNow(d.fd, d.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sock_diag: %w", err)
		}
		var done bool
		if d.out, done, err = parseDiag(d.buf[:n], d.seq, d.out); done || err != nil {
			return err
		}
	}
}
