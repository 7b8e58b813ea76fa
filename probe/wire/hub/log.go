package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logAdapter turns the server's log into slog: warnings and errors as they are,
// the rest at debug.
type logAdapter struct {
	log *slog.Logger

	mu     sync.Mutex // guards the field below
	fatals error
}

func (l *logAdapter) say(level func(string, ...any), format string, v []any) {
	level("hub: " + fmt.Sprintf(format, v...))
}

func (l *logAdapter) Noticef(format string, v ...any) { l.say(l.log.Debug, format, v) }
func (l *logAdapter) Debugf(format string, v ...any)  { l.say(l.log.Debug, format, v) }
func (l *logAdapter) Tracef(format string, v ...any)  { l.say(l.log.Debug, format, v) }
func (l *logAdapter) Errorf(format string, v ...any)  { l.say(l.log.Error, format, v) }

// Warnf passes a warning on, but for the one about plaintext passwords: ours is
// made in memory or given by the caller, never written to a server configuration.
func (l *logAdapter) Warnf(format string, v ...any) {
	level := l.log.Warn
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		level = l.log.Debug
	}
	l.say(level, format, v)
}

// Fatalf keeps the error: the server gives up starting, the process need not
// die.
func (l *logAdapter) Fatalf(format string, v ...any) {
	l.say(l.log.Error, format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatals = errors.Join(l.fatals, fmt.Errorf(format, v...))
}

// fatal returns why the server gave up, or nil.
func (l *logAdapter) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatals
}
