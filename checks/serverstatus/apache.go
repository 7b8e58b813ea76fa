package serverstatus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Apache asks an Apache httpd for mod_status's page for machines at
// http://HOST:PORT/PATH or http://unix:/SOCKET:/PATH; ?auto is added where it is
// missing. A worker answers.
func Apache(address string) (Source, error) {
	p, err := pageAt("apache", address, "/server-status")
	if !strings.Contains(p.path, "?") {
		p.path += "?auto"
	}
	return apache{p}, err
}

type apache struct{ page }

// Read implements Source.
func (a apache) Read(ctx context.Context) (Status, error) {
	body, err := a.get(ctx)
	if err != nil {
		return Status{}, err
	}
	s, err := parseApache(body)
	if err != nil {
		return Status{}, a.errorf("%w", err)
	}
	return s, nil
}

// parseApache reads "Name: value" lines. The scoreboard has a letter per slot;
// with the event MPM a slot is a thread. Apache counts requests, not connections.
func parseApache(body []byte) (Status, error) {
	value := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if name, v, ok := strings.Cut(line, ":"); ok {
			value[name] = strings.TrimSpace(v)
		}
	}
	board, ok := value["Scoreboard"]
	if !ok {
		return Status{}, fmt.Errorf("no Scoreboard in %q (is it mod_status, with ?auto?)", word(string(body)))
	}
	s := Status{Server: "apache"}
	for _, letter := range board {
		w, taken, err := slot(letter)
		if err != nil {
			return Status{}, err
		}
		if taken {
			s.Workers = append(s.Workers, w)
		}
	}
	// One of the busy is busy with our question.
	s.Text = fmt.Sprintf("apache: %s taken of %d, this question included", plural(len(s.Workers), "slot"), len(board))
	if len(s.Workers) > 0 {
		s.Text += ": " + states(s.Workers)
	}
	if n, err := strconv.ParseUint(value["Total Accesses"], 10, 64); err == nil {
		s.Text += fmt.Sprintf("; %s served", plural(n, "request"))
	}
	return s, nil
}

// slot reads a letter of the scoreboard (the key below mod_status's page).
func slot(letter rune) (w Worker, taken bool, err error) {
	switch letter {
	case '.':
		return Worker{}, false, nil
	case '_':
		w.State = "idle"
	case 'S':
		w.State = "starting"
	case 'I':
		w.State = "ending for want of work"
	case 'R':
		w.State, w.Busy = "reading", true
	case 'W':
		w.State, w.Busy = "sending", true
	case 'K':
		w.State, w.Busy = "keeping alive", true
	case 'D':
		w.State, w.Busy = "looking up a name", true
	case 'C':
		w.State, w.Busy = "closing", true
	case 'L':
		w.State, w.Busy = "logging", true
	case 'G':
		w.State, w.Busy, w.Old = "finishing gracefully", true, true
	default:
		return Worker{}, false, errors.New("the scoreboard has a letter that mod_status does not know")
	}
	return w, true, nil
}
