package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// stalled is a pipe nobody reads until it is released.
type stalled struct {
	release chan struct{}
	bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.release
	return s.Buffer.Write(p)
}

func TestLogWriter_AReaderThatStallsStopsNobody(t *testing.T) {
	w := &stalled{release: make(chan struct{})}
	l := newLogWriter(w)
	const extra = 100
	for range keptLines + 1 + extra { // the first may be in the writer's hands
		if _, err := l.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	close(w.release)
	l.close(10 * time.Second)
	lines := strings.Count(w.String(), "line\n")
	if lines < keptLines || !strings.Contains(w.String(), "log lines dropped") {
		t.Errorf("%d of %d lines were written, loss told: %t; want at least %d and the loss told",
			lines, keptLines+1+extra, strings.Contains(w.String(), "dropped"), keptLines)
	}
}
