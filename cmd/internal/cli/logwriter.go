package cli

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// logWriter hands lines to a slow writer without ever waiting for it: a log
// collector that stalls must not stall the judge. What does not fit is dropped,
// and the loss is told once there is room again.
type logWriter struct {
	lines   chan []byte // never closed: somebody may log when all is over
	dropped atomic.Uint64
	ending  chan struct{} // closed by close
	done    chan struct{} // closed when the last line is written
}

// keptLines bounds what waits. Chosen: a burst of an incident, under 1 MB.
const keptLines = 4096

// newLogWriter starts writing to w. close ends it.
func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{lines: make(chan []byte, keptLines), ending: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for {
			select {
			case line := <-l.lines:
				l.write(w, line)
			case <-l.ending:
				for len(l.lines) > 0 {
					l.write(w, <-l.lines)
				}
				return
			}
		}
	}()
	return l
}

func (l *logWriter) write(w io.Writer, line []byte) {
	if n := l.dropped.Swap(0); n > 0 {
		fmt.Fprintf(w, "level=WARN msg=\"log lines dropped: the log was not read\" lines=%d\n", n)
	}
	_, _ = w.Write(line) // there is nowhere to report it to
}

// Write implements io.Writer. It never blocks and never fails.
func (l *logWriter) Write(p []byte) (int, error) {
	select {
	case l.lines <- append([]byte(nil), p...):
	default:
		l.dropped.Add(1)
	}
	return len(p), nil
}

// close writes what waits, for at most the time given. What is logged after it is
// lost.
func (l *logWriter) close(atMost time.Duration) {
	close(l.ending)
	select {
	case <-l.done:
	case <-time.After(atMost):
	}
}
