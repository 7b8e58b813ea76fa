package host

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParseStat_CommandsMayHoldAnything(t *testing.T) {
	const tail = " S 7 1 1 0 -1 0 1 20 3 40 5 6 70 80 20 0 1 0 999 0 0 0 4096 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 9\n"
	for _, comm := range []string{"nginx", "", "a b", "evil) R 1 (", "))))", "line\nbreak"} {
		s, err := parseStat([]byte("42 (" + comm + ")" + tail))
		want := stat{pid: 42, comm: comm, state: 'S', ppid: 7, utime: 50 * time.Millisecond, stime: 60 * time.Millisecond, threads: 1, reaped: 20 + 40 + 70 + 80, childTime: 150 * tick, start: 999, startCode: 4096, exitCode: 9}
		if err != nil || s != want {
			t.Errorf("parseStat(comm %q) = %+v, %v, want %+v", comm, s, err, want)
		}
	}
	for name, bad := range map[string]string{
		"empty": "", "no command": "42 S 7", "cut short": "42 (x) S 7 1 1", "pid 0": "0 (x)" + tail,
		"a start beyond time": strings.Replace("1 (x)"+tail, " 999 ", " 18446744073709551615 ", 1),
		"a parent of letters": "1 (x) S a 1 1 0 -1 0 1 20 3 40 5 6 70 80 20 0 1 0 999\n",
	} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%s) = %+v, want an error", name, s)
		}
	}
}

func TestSocket_Satisfies(t *testing.T) {
	for _, tt := range []struct {
		have     string
		dual     bool
		declared string
		want     bool
	}{
		{"127.0.0.1:80", false, "127.0.0.1:80", true},
		{"127.0.0.1:80", false, "127.0.0.1:81", false},
		{"127.0.0.1:80", false, "127.0.0.2:80", false},
		{"0.0.0.0:80", false, "127.0.0.1:80", true},
		{"0.0.0.0:80", false, "0.0.0.0:80", true},
		{"127.0.0.1:80", false, "0.0.0.0:80", false},
		{"[::]:80", true, "127.0.0.1:80", true},
		{"[::]:80", true, "0.0.0.0:80", true},
		{"[::]:80", false, "127.0.0.1:80", false},
		{"[::]:80", false, "[::1]:80", true},
		{"[::]:80", false, "[::]:80", true},
		{"[::1]:80", false, "[::]:80", false},
		{"0.0.0.0:80", false, "[::1]:80", false},
		{"[fe80::1]:80", false, "[fe80::1%eth0]:80", true},
	} {
		s := socket{addr: netip.MustParseAddrPort(tt.have), dual: tt.dual}
		if got := s.satisfies(netip.MustParseAddrPort(tt.declared)); got != tt.want {
			t.Errorf("%s (dual %t) satisfies %s = %t, want %t", tt.have, tt.dual, tt.declared, got, tt.want)
		}
	}
}

// diagAnswer builds one message of a dump.
func diagAnswer(seq uint32, typ uint16, body []byte) []byte {
	b := make([]byte, nlHeaderLen, nlHeaderLen+len(body))
	binary.NativeEndian.PutUint32(b, uint32(nlHeaderLen+len(body)))
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return append(b, body...)
}

func TestParseDiag(t *testing.T) {
	msg := make([]byte, diagMsgLen, diagMsgLen+8)
	msg[0], msg[1] = afINET6, stateListen
	binary.BigEndian.PutUint16(msg[4:], 8080)
	binary.NativeEndian.PutUint32(msg[56:], 3)
	binary.NativeEndian.PutUint32(msg[60:], 128)
	binary.NativeEndian.PutUint32(msg[68:], 4242)
	v6only := binary.NativeEndian.AppendUint16(append([]byte{}, msg...), 5)
	v6only = append(binary.NativeEndian.AppendUint16(v6only, inetDiagSKV6ONLY), 1, 0, 0, 0)
	b := append(diagAnswer(7, sockDiagByFamily, msg), diagAnswer(7, sockDiagByFamily, v6only)...)
	b = append(b, diagAnswer(6, sockDiagByFamily, msg)...) // of an older request
	b = append(b, diagAnswer(7, nlmsgDone, make([]byte, 4))...)
	got, done, err := parseDiag(b, 7, nil)
	if err != nil || !done || len(got) != 2 || !got[0].dual || got[1].dual ||
		got[0].inode != 4242 || got[0].queue != 3 || got[0].backlog != 128 || got[0].addr.String() != "[::]:8080" {
		t.Errorf("parseDiag = %+v, %t, %v; want one dual-stack and one v6-only wildcard, done", got, done, err)
	}
	refusal := binary.NativeEndian.AppendUint32(nil, ^uint32(0)) // -1, EPERM
	if _, _, err := parseDiag(diagAnswer(7, nlmsgError, refusal), 7, nil); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("parseDiag(refusal) error = %v, want operation not permitted", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("28421 (nginx) S 1 28421 28421 0 -1 4194368 34 0 1 0 0 0 0 0 20 0 1 0 213645 11550720 376 18446744073709551615 94578509250560\n"))
	f.Add([]byte("1 (a) b) R 0 (1) 2"))
	f.Add([]byte("10()0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1000000000000"))
	f.Add([]byte("10 () S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1000000000000")) // a birth past what a Duration holds
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err == nil && (s.pid <= 0 || s.pid > maxPID || s.born() < 0) {
			t.Errorf("parseStat(%q) = %+v, out of range", b, s)
		}
	})
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagAnswer(1, sockDiagByFamily, make([]byte, diagMsgLen+8)), uint32(1))
	f.Add(diagAnswer(1, nlmsgDone, nil), uint32(1))
	f.Add(diagAnswer(1, nlmsgError, make([]byte, 2)), uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, seq uint32) {
		got, done, err := parseDiag(b, seq, nil)
		if len(got) > len(b)/(nlHeaderLen+unixMsgLen) || done && err == nil && len(b) < nlHeaderLen {
			t.Errorf("%d sockets, done %t out of %d bytes", len(got), done, len(b))
		}
	})
}

func FuzzSmallParsers(f *testing.F) {
	f.Add([]byte("12 13 \n"))
	f.Add([]byte("socket:[18446744073709551615]"))
	f.Add([]byte(" 4194304\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, pid := range parseChildren(b, nil) {
			if pid <= 0 || pid > maxPID {
				t.Errorf("parseChildren(%q) holds %d", b, pid)
			}
		}
		if pid, err := parsePIDFile(b); err == nil && (pid <= 0 || pid > maxPID) {
			t.Errorf("parsePIDFile(%q) = %d", b, pid)
		}
		parseSocketLink(b)
		exePath(b)
	})
}
