package host

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"
)

// Numbers and offsets of linux/connector.h and linux/cn_proc.h. A datagram is a
// struct nlmsghdr, a struct cn_msg and a struct proc_event.
const (
	cnIDProc       = 1 // CN_IDX_PROC and CN_VAL_PROC
	cnMcastListen  = 1 // PROC_CN_MCAST_LISTEN
	cnMcastIgnore  = 2 // PROC_CN_MCAST_IGNORE
	cnHeaderLen    = 20
	procEventAt    = nlHeaderLen + cnHeaderLen
	procEventLen   = 40 // up to the parent of an exit (since Linux 4.18; zero before)
	procTimeAt     = procEventAt + 8
	procPayloadAt  = procEventAt + 16
	procAck        = 0
	procFork       = 0x00000001
	procExit       = 0x80000000
	procFirstPID   = procPayloadAt      // fork: parent_pid; exit: process_pid
	procFirstTGID  = procPayloadAt + 4  // fork: parent_tgid; exit: process_tgid
	procChildPID   = procPayloadAt + 8  // fork: child_pid; exit: exit_code
	procChildTGID  = procPayloadAt + 12 // fork: child_tgid; exit: exit_signal
	procExitParent = procPayloadAt + 20 // exit: parent_tgid
)

// procEvent is one event of the process connector.
type procEvent struct {
	kind uint32 // procAck, procFork or procExit
	// at is on CLOCK_MONOTONIC: of a fork before the child runs, of an exit after
	// the parent could know.
	at time.Duration
	// pid was born or ended; parent is the process it belongs to, 0 if it was
	// reaped before the event was made, or the kernel is older than 4.18.
	pid, parent int
	thread      bool   // of a thread of a process that lives on
	status      int    // exit: as wait(2) has it
	errno       uint32 // ack: 0 if we may listen
}

var errBadProcEvent = errors.New("malformed process event")

// parseProcEvents reads one datagram and appends its events to into. Events of
// other sorts and other connectors are skipped.
func parseProcEvents(b []byte, into []procEvent) ([]procEvent, error) {
	ne := binary.NativeEndian
	for len(b) >= nlHeaderLen {
		n := int(ne.Uint32(b))
		if n < nlHeaderLen || n > len(b) {
			return into, errBadProcEvent
		}
		m := b[:n]
		b = b[min((n+3)&^3, len(b)):]
		if n < procEventAt || ne.Uint32(m[nlHeaderLen:]) != cnIDProc || ne.Uint32(m[nlHeaderLen+4:]) != cnIDProc {
			continue
		}
		if n < procEventAt+procEventLen {
			return into, errBadProcEvent
		}
		word := func(at int) int { return int(int32(ne.Uint32(m[at:]))) }
		e := procEvent{kind: ne.Uint32(m[procEventAt:]), at: time.Duration(ne.Uint64(m[procTimeAt:]) &^ (1 << 63))}
		switch e.kind {
		case procAck:
			e.errno = ne.Uint32(m[procPayloadAt:])
		case procFork:
			e.pid, e.parent = word(procChildTGID), word(procFirstTGID)
			e.thread = word(procChildPID) != e.pid
		case procExit:
			e.pid, e.parent, e.status = word(procFirstTGID), word(procExitParent), word(procChildPID)
			e.thread = word(procFirstPID) != e.pid
		default:
			continue
		}
		if e.pid < 0 || e.pid > maxPID || e.parent < 0 || e.parent > maxPID {
			return into, errBadProcEvent
		}
		into = append(into, e)
	}
	return into, nil
}

// mainsPerFilter is how many mains one filter holds; chosen: at 6 instructions
// each (3 chains of 2) it stays under what the kernel takes (BPF_MAXINSNS, 4096).
const mainsPerFilter = 500

// insn is one classic BPF instruction (struct sock_filter, linux/filter.h).
type insn struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// The instructions used, linux/bpf_common.h.
const (
	bpfLoad    = 0x20 // BPF_LD | BPF_W | BPF_ABS: A = the word at k, from network order
	bpfToX     = 0x07 // BPF_MISC | BPF_TAX
	bpfJump    = 0x05 // BPF_JMP | BPF_JA
	bpfJumpEq  = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	bpfJumpEqX = 0x1d // BPF_JMP | BPF_JEQ | BPF_X
	bpfReturn  = 0x06 // BPF_RET | BPF_K: bytes to keep; 0 drops the datagram
	bpfKeepAll = 1<<32 - 1
)

// filterCode is a filter while it is written. No conditional jump is longer than
// two instructions, so that any number of mains fits the 8 bits it has.
type filterCode []insn

func (p *filterCode) add(code uint16, jt, jf uint8, k uint32) { *p = append(*p, insn{code, jt, jf, k}) }
func (p *filterCode) load(at uint32)                          { p.add(bpfLoad, 0, 0, at) }
func (p *filterCode) accept()                                 { p.add(bpfReturn, 0, 0, bpfKeepAll) }
func (p *filterCode) drop()                                   { p.add(bpfReturn, 0, 0, 0) }

// acceptIf accepts if A is v.
func (p *filterCode) acceptIf(v uint32) {
	p.add(bpfJumpEq, 0, 1, networkOrder(v))
	p.accept()
}

// acceptAmong accepts if the word at at is one of pids.
func (p *filterCode) acceptAmong(at uint32, pids []int) {
	p.load(at)
	for _, pid := range pids {
		p.acceptIf(uint32(pid))
	}
}

// dropThreads drops unless the words at a and b, a pid and its tgid, are equal.
func (p *filterCode) dropThreads(a, b uint32) {
	p.load(a)
	p.add(bpfToX, 0, 0, 0)
	p.load(b)
	p.add(bpfJumpEqX, 1, 0, 0)
	p.drop()
}

// procFilter is a socket filter that lets only such events wake us as concern
// the mains: the answer to our subscription, forks whose parent is one of them,
// exits of them and of their children and, with orphans, exits whose parent is
// not told. With all, the forks and exits of every process pass. Those of
// threads never do.
func procFilter(mains []int, orphans, all bool) []insn {
	var forks, exits, p filterCode
	forks.dropThreads(procChildPID, procChildTGID)
	exits.dropThreads(procFirstPID, procFirstTGID)
	if all {
		forks.accept()
		exits.accept()
	} else {
		forks.acceptAmong(procFirstTGID, mains)
		forks.drop()
		exits.acceptAmong(procFirstTGID, mains)
		exits.acceptAmong(procExitParent, mains)
		if orphans {
			exits.acceptIf(0)
		}
		exits.drop()
	}
	p.load(procEventAt)
	p.acceptIf(procAck)
	p.add(bpfJumpEq, 0, 1, networkOrder(procFork))
	p.add(bpfJump, 0, 0, uint32(2+len(exits))) // over the next two and the exits
	p.add(bpfJumpEq, 1, 0, networkOrder(procExit))
	p.drop()
	return append(append(p, exits...), forks...)
}

// networkOrder is v as a load of classic BPF sees it: it takes words for big
// endian, and the kernel wrote them in its own order.
func networkOrder(v uint32) uint32 {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return bits.ReverseBytes32(v)
	}
	return v
}
