package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// socket is one LISTEN socket of the kernel's answer.
type socket struct {
	addr netip.AddrPort
	// path is the name of a unix socket, "@name" in the abstract namespace; addr
	// is zero then.
	path string
	// dual: an IPv6 wildcard that takes IPv4 as well.
	dual bool
	// queue is the accept queue now, backlog its limit: for LISTEN sockets
	// inet_diag puts them into rqueue and wqueue (net/ipv4/tcp_diag.c).
	queue, backlog uint32
	inode          uint64
}

// Sizes and numbers of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h.
const (
	nlHeaderLen       = 16
	diagReqLen        = 56 // struct inet_diag_req_v2
	diagMsgLen        = 72 // struct inet_diag_msg
	sockDiagByFamily  = 20
	nlmsgError        = 2
	nlmsgDone         = 3
	nlmFRequest       = 0x1         // NLM_F_REQUEST
	nlmFRequestDump   = 0x1 | 0x300 // NLM_F_REQUEST | NLM_F_DUMP
	stateListen       = 10          // TCP_LISTEN, net/tcp_states.h
	ipprotoTCP        = 6
	afINET            = 2
	afINET6           = 10
	inetDiagSKV6ONLY  = 11
	attrTypeMask      = 0x3fff // NLA_TYPE_MASK
	diagAddressOffset = 8      // family, state, timer, retrans, sport, dport
)

// listenRequest asks for the LISTEN sockets of one family. The kernel filters
// by state, which is what makes a dump cheap on a busy host.
func listenRequest(family byte, seq uint32) []byte {
	if family == afUnix {
		return unixRequest(seq)
	}
	b := make([]byte, nlHeaderLen+diagReqLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], nlmFRequestDump)
	ne.PutUint32(b[8:], seq)
	b[16], b[17] = family, ipprotoTCP
	ne.PutUint32(b[20:], 1<<stateListen)
	return b
}

var errBadDiag = errors.New("malformed sock_diag answer")

// parseDiag reads one datagram of the answer to request seq and appends its
// sockets to into. done says that the dump is complete. Messages of other
// requests (left over from one that was cut short) are skipped.
func parseDiag(b []byte, seq uint32, into []socket) (out []socket, done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= nlHeaderLen {
		n := int(ne.Uint32(b))
		if n < nlHeaderLen || n > len(b) {
			return into, false, errBadDiag
		}
		body := b[nlHeaderLen:n]
		if ne.Uint32(b[8:]) == seq {
			switch typ := ne.Uint16(b[4:]); typ {
			case nlmsgDone, nlmsgError:
				if typ == nlmsgError && len(body) < 4 {
					return into, false, errBadDiag
				}
				if len(body) >= 4 {
					if e := int32(ne.Uint32(body)); e < 0 {
						return into, false, fmt.Errorf("sock_diag: %w", syscall.Errno(-e))
					}
				}
				return into, true, nil
			case sockDiagByFamily:
				parse := parseDiagMsg
				if len(body) > 0 && body[0] == afUnix {
					parse = parseUnixMsg
				}
				s, ok, err := parse(body)
				if err != nil {
					return into, false, err
				}
				if ok {
					into = append(into, s)
				}
			}
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return into, false, nil
}

// parseDiagMsg reads one struct inet_diag_msg with its attributes. ok is false
// for what is no LISTEN socket of an IP family.
func parseDiagMsg(b []byte) (s socket, ok bool, err error) {
	if len(b) < diagMsgLen {
		return s, false, errBadDiag
	}
	ne := binary.NativeEndian
	port := binary.BigEndian.Uint16(b[4:])
	s = socket{queue: ne.Uint32(b[56:]), backlog: ne.Uint32(b[60:]), inode: uint64(ne.Uint32(b[68:]))}
	if b[1] != stateListen {
		return s, false, nil
	}
	switch b[0] {
	case afINET:
		s.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[diagAddressOffset:])), port)
	case afINET6:
		addr := netip.AddrFrom16([16]byte(b[diagAddressOffset:]))
		// Without the attribute (kernels before 4.10) dual stack is the default.
		s.dual = addr.IsUnspecified() && !v6Only(b[diagMsgLen:])
		s.addr = netip.AddrPortFrom(addr.Unmap(), port)
	default:
		return s, false, nil
	}
	return s, true, nil
}

// v6Only looks for INET_DIAG_SKV6ONLY among netlink attributes.
func v6Only(b []byte) bool {
	ne := binary.NativeEndian
	for len(b) >= 4 {
		n := int(ne.Uint16(b))
		if n < 4 || n > len(b) {
			return false
		}
		if ne.Uint16(b[2:])&attrTypeMask == inetDiagSKV6ONLY && n > 4 {
			return b[4] != 0
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return false
}

// satisfies reports whether s serves the declared address: the same address
// and port, or a wildcard of a family that takes it. A declared wildcard wants
// a wildcard.
func (s *socket) satisfies(declared netip.AddrPort) bool {
	if s.addr.Port() != declared.Port() {
		return false
	}
	have, want := s.addr.Addr(), declared.Addr().WithZone("")
	switch {
	case have == want:
		return true
	case !have.IsUnspecified():
		return false
	case want.Is4():
		return have.Is4() || s.dual
	}
	return have.Is6()
}
