package host

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
)

// States of net/tcp_states.h in which a connection may still wait in an accept
// queue: the client alone can have acted on it.
const (
	stateEstablished = 1
	stateSynRecv     = 3
	stateCloseWait   = 8
	stateNewSynRecv  = 12
)

// connection is one TCP socket that is no listener.
type connection struct {
	state byte
	// inode is 0 while no process has accepted it, and after all have closed it.
	inode uint32
}

// accepted reports whether a process took the connection from its accept queue.
// Without an inode that is so if the server's side was closed: an orphan lives
// on in the closing states, a connection that was never accepted is reset.
func (c connection) accepted() bool {
	if c.inode != 0 {
		return true
	}
	switch c.state {
	case stateEstablished, stateSynRecv, stateCloseWait, stateNewSynRecv:
		return false
	}
	return true
}

// lookupRequest asks for one socket by its addresses: local is its own, remote
// its peer's (struct inet_diag_req_v2 with struct inet_diag_sockid). Not a dump:
// the kernel hashes.
func lookupRequest(local, remote netip.AddrPort, ifindex, seq uint32) []byte {
	const noCookie = 1<<32 - 1 // INET_DIAG_NOCOOKIE
	b := make([]byte, nlHeaderLen+diagReqLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], nlmFRequest)
	ne.PutUint32(b[8:], seq)
	from, to := local.Addr().Unmap(), remote.Addr().Unmap()
	b[16], b[17] = afINET6, ipprotoTCP
	if from.Is4() {
		b[16] = afINET
	}
	ne.PutUint32(b[20:], 1<<32-1) // all states
	id := b[24:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], from.AsSlice())
	copy(id[20:36], to.AsSlice())
	ne.PutUint32(id[36:], ifindex)
	ne.PutUint32(id[40:], noCookie)
	ne.PutUint32(id[44:], noCookie)
	return b
}

// parseLookup reads the answer to request seq. ok is false if there is no such
// connection, or if the answer is another's and the right one still comes.
func parseLookup(b []byte, seq uint32) (c connection, ok, more bool, err error) {
	ne := binary.NativeEndian
	if len(b) < nlHeaderLen {
		return c, false, false, errBadDiag
	}
	n := int(ne.Uint32(b))
	if n < nlHeaderLen || n > len(b) {
		return c, false, false, errBadDiag
	}
	if ne.Uint32(b[8:]) != seq {
		return c, false, true, nil
	}
	body := b[nlHeaderLen:n]
	switch typ := ne.Uint16(b[4:]); {
	case typ == nlmsgError && len(body) >= 4:
		if e := syscall.Errno(-int32(ne.Uint32(body))); e != 0 && e != syscall.ENOENT {
			return c, false, false, fmt.Errorf("sock_diag: %w", e)
		}
		return c, false, false, nil
	case typ == sockDiagByFamily && len(body) >= diagMsgLen:
		c = connection{state: body[1], inode: ne.Uint32(body[68:])}
		// Without such a connection the kernel finds the listener.
		return c, c.state != stateListen, false, nil
	}
	return c, false, false, errBadDiag
}
