package host

import (
	"encoding/binary"
	"net/netip"
)

// Sizes and numbers of linux/unix_diag.h.
const (
	afUnix          = 1
	unixReqLen      = 24 // struct unix_diag_req
	unixMsgLen      = 16 // struct unix_diag_msg
	unixShowName    = 0x1
	unixShowRQLen   = 0x10
	unixDiagName    = 0
	unixDiagRQLen   = 4
	sockStream      = 1
	sockSeqPacket   = 5
	unixStatesAt    = 4
	unixShowAt      = 12
	unixMsgInodeAt  = 4
	unixMsgStateAt  = 2
	unixMsgSockType = 1
)

// unixRequest asks for the LISTEN unix sockets with their names and queues.
func unixRequest(seq uint32) []byte {
	b := make([]byte, nlHeaderLen+unixReqLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], nlmFRequestDump)
	ne.PutUint32(b[8:], seq)
	req := b[nlHeaderLen:]
	req[0] = afUnix
	ne.PutUint32(req[unixStatesAt:], 1<<stateListen)
	ne.PutUint32(req[unixShowAt:], unixShowName|unixShowRQLen)
	return b
}

// parseUnixMsg reads one struct unix_diag_msg with its attributes. ok is false
// for what is no LISTEN socket with a name. The queue is the receive queue of a
// listening socket, where connections wait; a datagram socket has none.
func parseUnixMsg(b []byte) (s socket, ok bool, err error) {
	if len(b) < unixMsgLen {
		return s, false, errBadDiag
	}
	ne := binary.NativeEndian
	s = socket{addr: netip.AddrPort{}, inode: uint64(ne.Uint32(b[unixMsgInodeAt:]))}
	kind, state := b[unixMsgSockType], b[unixMsgStateAt]
	for rest := b[unixMsgLen:]; len(rest) >= 4; {
		n := int(ne.Uint16(rest))
		if n < 4 || n > len(rest) {
			return s, false, errBadDiag
		}
		value := rest[4:n]
		switch ne.Uint16(rest[2:]) & attrTypeMask {
		case unixDiagName:
			s.path = unixName(value)
		case unixDiagRQLen:
			if len(value) < 8 {
				return s, false, errBadDiag
			}
			s.queue, s.backlog = ne.Uint32(value), ne.Uint32(value[4:])
		}
		rest = rest[min((n+3)&^3, len(rest)):]
	}
	return s, state == stateListen && s.path != "" && (kind == sockStream || kind == sockSeqPacket), nil
}

// unixName is sun_path as people write it: a leading zero byte, which marks the
// abstract namespace, is "@"; a path may end with one.
func unixName(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if b[0] == 0 {
		return "@" + string(b[1:])
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
