package host

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// procDatagram is what the kernel sends for one event: the words of its union.
func procDatagram(kind uint32, words ...int32) []byte {
	ne := binary.NativeEndian
	b := make([]byte, procEventAt+procEventLen)
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], nlmsgDone)
	ne.PutUint32(b[nlHeaderLen:], cnIDProc)
	ne.PutUint32(b[nlHeaderLen+4:], cnIDProc)
	ne.PutUint16(b[nlHeaderLen+16:], procEventLen)
	ne.PutUint32(b[procEventAt:], kind)
	ne.PutUint64(b[procTimeAt:], uint64(5*time.Second))
	for i, w := range words {
		ne.PutUint32(b[procPayloadAt+4*i:], uint32(w))
	}
	return b
}

const procExec = 2

func TestParseProcEvents(t *testing.T) {
	at := 5 * time.Second
	for name, tt := range map[string]struct {
		b    []byte
		want []procEvent
	}{
		"fork":               {procDatagram(procFork, 100, 100, 200, 200), []procEvent{{kind: procFork, at: at, pid: 200, parent: 100}}},
		"fork by a thread":   {procDatagram(procFork, 101, 100, 200, 200), []procEvent{{kind: procFork, at: at, pid: 200, parent: 100}}},
		"birth of a thread":  {procDatagram(procFork, 100, 100, 201, 200), []procEvent{{kind: procFork, at: at, pid: 200, parent: 100, thread: true}}},
		"exit 7":             {procDatagram(procExit, 200, 200, 7<<8, 17, 100, 100), []procEvent{{kind: procExit, at: at, pid: 200, parent: 100, status: 7 << 8}}},
		"exit of a thread":   {procDatagram(procExit, 201, 200, 0, -1, 100, 100), []procEvent{{kind: procExit, at: at, pid: 200, parent: 100, thread: true}}},
		"exit of the reaped": {procDatagram(procExit, 200, 200, 9, 17, 0, 0), []procEvent{{kind: procExit, at: at, pid: 200, status: 9}}},
		"refusal":            {procDatagram(procAck, 1), []procEvent{{kind: procAck, at: at, errno: 1}}},
		"exec":               {procDatagram(procExec, 200, 200), nil},
		"two at once": {append(procDatagram(procExec, 200, 200), procDatagram(procFork, 100, 100, 200, 200)...),
			[]procEvent{{kind: procFork, at: at, pid: 200, parent: 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseProcEvents(tt.b, nil)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(procEvent{})); diff != "" || err != nil {
				t.Errorf("parseProcEvents: %v (-want +got):\n%s", err, diff)
			}
		})
	}
	for name, b := range map[string][]byte{
		"shorter than it says": procDatagram(procFork, 1, 1, 2, 2)[:60],
		"a length of nothing":  make([]byte, 16),
		"a negative pid":       procDatagram(procFork, 1, 1, -5, -5),
	} {
		if _, err := parseProcEvents(b, nil); err == nil {
			t.Errorf("parseProcEvents(%s) = nil error, want %v", name, errBadProcEvent)
		}
	}
}

// passes runs a filter as the kernel does (net/core/filter.c), for the few
// instructions it has.
func passes(t *testing.T, p []insn, b []byte) bool {
	t.Helper()
	var a, x uint32
	for i := 0; i < len(p); i++ {
		jump := func(yes bool) {
			if yes {
				i += int(p[i].jt)
			} else {
				i += int(p[i].jf)
			}
		}
		switch in := p[i]; in.code {
		case bpfLoad:
			if int(in.k)+4 > len(b) {
				return false
			}
			a = binary.BigEndian.Uint32(b[in.k:])
		case bpfToX:
			x = a
		case bpfJump:
			i += int(in.k)
		case bpfJumpEq:
			jump(a == in.k)
		case bpfJumpEqX:
			jump(a == x)
		case bpfReturn:
			return in.k != 0
		default:
			t.Fatalf("instruction %d: code %#x", i, in.code)
		}
	}
	t.Fatal("the filter ends without a return")
	return false
}

func TestProcFilter_PassesOnlyWhatConcernsTheMains(t *testing.T) {
	many := make([]int, mainsPerFilter)
	for i := range many {
		many[i] = 1000 + i
	}
	for name, tt := range map[string]struct {
		b                            []byte
		two, strict, none, all, most bool
	}{
		//                                                                                   two mains, without orphans, none, all, 500 mains
		"ack":                           {procDatagram(procAck), true, true, true, true, true},
		"fork by a main":                {procDatagram(procFork, 8, 1008, 9, 9), true, true, false, true, true},
		"fork by the last main":         {procDatagram(procFork, 1499, 1499, 9, 9), false, false, false, true, true},
		"fork by a stranger":            {procDatagram(procFork, 8, 8, 9, 9), false, false, false, true, false},
		"thread of a worker":            {procDatagram(procFork, 1008, 1008, 10, 9), false, false, false, false, false},
		"exit of a main":                {procDatagram(procExit, 1009, 1009, 0, 17, 1, 1), true, true, false, true, true},
		"exit of a worker":              {procDatagram(procExit, 9, 9, 0, 17, 1009, 1009), true, true, false, true, true},
		"exit of the last main's":       {procDatagram(procExit, 9, 9, 0, 17, 1499, 1499), false, false, false, true, true},
		"exit of a stranger":            {procDatagram(procExit, 9, 9, 0, 17, 1, 1), false, false, false, true, false},
		"exit of a thread":              {procDatagram(procExit, 10, 9, 0, -1, 1009, 1009), false, false, false, false, false},
		"exit without a parent":         {procDatagram(procExit, 9, 9, 0, 17, 0, 0), true, false, true, true, true},
		"a status that looks like main": {procDatagram(procExit, 9, 9, 1009, 1009, 1, 1), false, false, false, true, false},
		"exec by a main":                {procDatagram(procExec, 1008, 1008), false, false, false, false, false},
		"cut short":                     {procDatagram(procFork, 1008, 1008, 9, 9)[:procPayloadAt], false, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, c := range map[string]struct {
				p    []insn
				want bool
			}{
				"two":    {procFilter([]int{1008, 1009}, true, false), tt.two},
				"strict": {procFilter([]int{1008, 1009}, false, false), tt.strict},
				"none":   {procFilter(nil, true, false), tt.none},
				"all":    {procFilter(nil, true, true), tt.all},
				"most":   {procFilter(many, true, false), tt.most},
			} {
				if got := passes(t, c.p, tt.b); got != c.want {
					t.Errorf("filter %q passes it: %t, want %t", kind, got, c.want)
				}
			}
		})
	}
	if n := len(procFilter(many, true, false)); n > 4096 {
		t.Errorf("%d instructions for %d mains, and the kernel takes 4096", n, len(many))
	}
}

func FuzzParseProcEvents(f *testing.F) {
	f.Add(procDatagram(procFork, 100, 100, 200, 200))
	f.Add(append(procDatagram(procExit, 200, 200, 9, 17, 100, 100), procDatagram(procAck, 1)...))
	f.Add(procDatagram(procFork, 1, 1, -5, -5))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseProcEvents(b, nil)
		for _, e := range got {
			if e.pid < 0 || e.pid > maxPID || e.parent < 0 || e.parent > maxPID || e.at < 0 {
				t.Errorf("parseProcEvents(%x) holds %+v", b, e)
			}
		}
		if len(got) > len(b)/(procEventAt+procEventLen) {
			t.Errorf("%d events out of %d bytes, %v", len(got), len(b), fmt.Sprint(err))
		}
	})
}
