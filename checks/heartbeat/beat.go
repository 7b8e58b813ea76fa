package heartbeat

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Beat is one message of a workload. The zero value is a plain sign of life.
type Beat struct {
	// Worker names the one that sent it; empty if it did not say.
	Worker string
	// PID is the sender's as the kernel tells it; 0 if it does not.
	PID int
	// Mute: it said something, but not that it lives (STATUS= alone).
	Mute bool
	// Status is what it says of itself; nil if it said nothing of that.
	Status *string
	// Ready: it has started, or has loaded its configuration. Reloading and
	// Stopping announce what it is about to do. Trigger: it asks to be taken for
	// silent (WATCHDOG=trigger).
	Ready, Reloading, Stopping, Trigger bool
}

const (
	// MessageLimit is the longest message that is taken; systemd's own limit
	// (NOTIFY_BUFFER_MAX, src/core/manager.c) is a page, 4096 bytes.
	MessageLimit = 4096
	// statusLimit is how much of a status is kept, in bytes; chosen: one line of a
	// page.
	statusLimit = 256
	// workerLimit is the longest name of a worker, as of everything else.
	workerLimit = 63
)

// The refusals. They are counted, and the first of each sort is logged.
var (
	ErrMalformed = errors.New("malformed heartbeat")
	ErrUnknown   = errors.New("a worker that is not declared")
	ErrTooMany   = errors.New("too many heartbeats")
)

// ParseNotify reads a message in the format of sd_notify(3): lines KEY=VALUE, of
// which those that are not known say nothing to us. Without one that says that
// the sender lives (READY=1, WATCHDOG=1, RELOADING=1) the beat is mute.
func ParseNotify(b []byte) (Beat, error) {
	var beat Beat
	lives := false
	if len(b) > MessageLimit {
		return beat, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MessageLimit)
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return beat, fmt.Errorf("%w: not text", ErrMalformed)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found || key == "" {
			return beat, fmt.Errorf("%w: %q is not KEY=VALUE", ErrMalformed, cut(line, 32))
		}
		if err := beat.take(key, value); err != nil {
			return beat, err
		}
		lives = lives || (key == "READY" || key == "WATCHDOG" || key == "RELOADING") && value == "1"
	}
	beat.Mute = beat.Trigger || !lives
	return beat, nil
}

func (b *Beat) take(key, value string) error {
	switch key {
	case "READY":
		b.Ready = b.Ready || value == "1"
	case "RELOADING":
		b.Reloading = b.Reloading || value == "1"
	case "STOPPING":
		b.Stopping = b.Stopping || value == "1"
	case "WATCHDOG":
		b.Trigger = b.Trigger || value == "trigger"
	case "STATUS":
		s := printable(value)
		b.Status = &s
	case "X_CROSSCHECK_WORKER":
		var err error
		b.Worker, err = WorkerName(value)
		return err
	}
	return nil
}

// WorkerName returns s if it has the form of a name, else ErrMalformed.
func WorkerName(s string) (string, error) {
	if !isName(s) {
		return "", fmt.Errorf("%w: %q is no name of a worker: a-z, 0-9, - and _, at most %d", ErrMalformed, cut(s, 32), workerLimit)
	}
	return s, nil
}

// isName has the form of all names in the configuration.
func isName(s string) bool {
	for i, r := range []byte(s) {
		letter := 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
		if !letter && (i == 0 || r != '-' && r != '_') {
			return false
		}
	}
	return s != "" && len(s) <= workerLimit
}

// printable is a status without control characters, cut to its limit: it ends in
// logs, pages and on consoles.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(cut(s, statusLimit))
}

// cut returns at most n bytes of s, whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
