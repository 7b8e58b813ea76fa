package host

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is a kernel's answer to unixRequest(7) on a little-endian machine:
// three sockets in a network namespace of their own, and the end of the dump.
func recorded(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/unix-listen.le")
	if err != nil {
		tb.Fatal(err)
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		tb.Skip("recorded on a little-endian machine")
	}
	return b
}

func TestParseUnix_ReadsARecordedAnswer(t *testing.T) {
	got, done, err := parseDiag(recorded(t), 7, nil)
	if !done || err != nil {
		t.Fatalf("parseDiag() = %t, %v; want the whole dump", done, err)
	}
	want := []socket{
		{path: "/tmp/rec/s/php.sock", queue: 3, backlog: 511, inode: 5572761},
		{path: "/tmp/rec/s/seq.sock", queue: 1, backlog: 128, inode: 5572766},
		{path: "@crosscheck", queue: 0, backlog: 7, inode: 5572765},
	}
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(socket{}), same); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
	for _, s := range got {
		if s.satisfies(netip.MustParseAddrPort("0.0.0.0:1")) {
			t.Errorf("%+v satisfies a TCP listener", s)
		}
	}
	if got, done, err := parseDiag(recorded(t), 8, nil); len(got) != 0 || done || err != nil {
		t.Errorf("parseDiag(of another request) = %v, %t, %v; want it skipped", got, done, err)
	}
}

func TestUnixName(t *testing.T) {
	for in, want := range map[string]string{"": "", "/a": "/a", "/a\x00": "/a", "\x00a": "@a", "\x00a\x00b": "@a\x00b", "\x00": "@"} {
		if got := unixName([]byte(in)); got != want {
			t.Errorf("unixName(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseUnix(f *testing.F) {
	whole := recorded(f)
	f.Add(whole)
	for _, n := range []int{16, 20, 32, 75, 76, 100, 230} {
		f.Add(whole[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, done, err := parseDiag(b, 7, nil)
		if done && err != nil && len(got) > len(b) {
			t.Errorf("%d sockets out of %d bytes", len(got), len(b))
		}
		parseUnixMsg(b)
		if c, ok, more, err := parseLookup(b, 7); ok && (more || err != nil || c.state == stateListen) {
			t.Errorf("parseLookup() = %+v, %t, %t, %v", c, ok, more, err)
		}
	})
}
