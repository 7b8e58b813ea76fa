//go:build linux

package servers

import (
	"bytes"
	"io"
	"testing"
)

func TestFastCGI_ReadsWhatTheScriptWrote(t *testing.T) {
	answer := record(nil, fcgiStdout, []byte("Status: 200\r\n\r\nser"))
	answer = record(answer, 7, []byte("a warning")) // stderr is not the answer
	answer = record(answer, fcgiStdout, []byte("ved\n"))
	answer = record(answer, fcgiEnd, make([]byte, 8))
	var got bytes.Buffer
	if err := fcgiBody(bytes.NewReader(answer), &got); err != nil || got.String() != "Status: 200\r\n\r\nserved\n" {
		t.Errorf("read %q, %v", got.String(), err)
	}
	if err := fcgiBody(bytes.NewReader(nil), io.Discard); err != errClosed {
		t.Errorf("nothing came: %v, want %v", err, errClosed)
	}
	if err := fcgiBody(bytes.NewReader(answer[:20]), io.Discard); err == nil {
		t.Error("a cut answer was taken for a whole one")
	}
}

func FuzzFastCGI_AnyAnswerEnds(f *testing.F) {
	f.Add(record(record(nil, fcgiStdout, []byte("served")), fcgiEnd, make([]byte, 8)))
	f.Add([]byte{1, 6, 0, 1, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, answer []byte) {
		var got bytes.Buffer
		_ = fcgiBody(bytes.NewReader(answer), &got)
		if got.Len() > len(answer) {
			t.Errorf("%d bytes out of %d", got.Len(), len(answer))
		}
	})
}
