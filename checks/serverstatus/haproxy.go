package serverstatus

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HAProxyMaster asks the master of haproxy -W over its command line socket
// (haproxy -S PATH or HOST:PORT; management guide, section 9.4). Main answers "show proc" by
// itself; then each worker is asked through it for its frontends, so that a
// worker that does not answer is known by name.
func HAProxyMaster(address string) (Source, error) {
	p, err := socketOrPort("haproxy master", address)
	return haproxy{p}, err
}

type haproxy struct{ place }

const (
	// maxAsked is how many workers are asked one by one. Chosen: haproxy has one
	// since 2.5 (nbproc is gone), and old ones take no connections.
	maxAsked = 4
	// workerPatience is how long a worker may take. Chosen: 2,000 times what
	// was measured, and all of maxAsked cannot use up Timeout and hide main's word.
	workerPatience = 700 * time.Millisecond
)

// Read implements Source.
func (h haproxy) Read(ctx context.Context) (Status, error) {
	answer, err := h.command(ctx, "show proc")
	if err != nil {
		return Status{}, err
	}
	said, err := parseProcs(answer)
	if err != nil {
		return Status{}, h.errorf("show proc: %w", err)
	}
	s := Status{Server: "haproxy", Workers: said.workers, OutOfBand: true}
	var all frontends
	var silent []Worker
	asked, told := 0, 0
	for i := range s.Workers {
		w := &s.Workers[i]
		if w.Old || asked == maxAsked {
			continue
		}
		asked++
		switch f, err := h.frontends(ctx, w.PID); {
		case err == nil:
			told++
			w.Requests = f.requests
			all.accepted, all.open = all.accepted+f.accepted, all.open+f.open
		case errors.Is(err, ErrNoAnswer):
			w.State = "not answering"
			silent = append(silent, *w)
		}
	}
	s.Text = said.sentence()
	if told > 0 && told == len(s.Workers)-count(s.Workers, old) {
		s.Accepted, s.AcceptedKnown = all.accepted, true
		s.Text += fmt.Sprintf("; %s accepted, %d open", plural(all.accepted, "connection"), all.open)
	}
	if len(silent) > 0 {
		s.Text += fmt.Sprintf("; no answer through it from worker %s", pids(silent))
	}
	return s, nil
}

// frontends asks one worker, through main.
func (h haproxy) frontends(ctx context.Context, pid int) (frontends, error) {
	ctx, cancel := context.WithTimeout(ctx, workerPatience)
	defer cancel()
	// -1 1 -1: any proxy, frontends only, any server.
	answer, err := h.command(ctx, fmt.Sprintf("@!%d show stat -1 1 -1", pid))
	if err != nil {
		return frontends{}, err
	}
	return parseFrontends(answer)
}

// command runs one command. That we send no more tells the master to close after
// its answer.
func (h haproxy) command(ctx context.Context, line string) ([]byte, error) {
	var answer []byte
	err := h.talk(ctx, func(conn net.Conn) error {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			return err
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			if err := c.CloseWrite(); err != nil {
				return err
			}
		}
		var err error
		answer, err = readAll(conn)
		return err
	})
	return answer, err
}

func old(w Worker) bool { return w.Old }

// procs is what "show proc" tells.
type procs struct {
	workers []Worker
	// failed reloads since the last that worked; failedKnown since haproxy 2.5.
	failed      uint64
	failedKnown bool
}

func (p procs) sentence() string {
	olds := count(p.workers, old)
	current := slices.DeleteFunc(slices.Clone(p.workers), old)
	text := "haproxy master: " + plural(len(current), "worker")
	if len(current) > 0 {
		text += " " + pids(current)
	}
	text += fmt.Sprintf(", %d old", olds)
	if p.failedKnown {
		text += ", " + plural(p.failed, "reload") + " failed"
	}
	return text
}

// parseProcs reads the table of "show proc": a line per process with its pid,
// type, reloads, uptime and version, below headings such as "# old workers".
func parseProcs(answer []byte) (procs, error) {
	var p procs
	master, oldSection := false, false
	for line := range strings.Lines(string(answer)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			oldSection = strings.HasPrefix(line, "# old ")
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		pid, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil || pid <= 0 {
			return procs{}, fmt.Errorf("%q is no process of a table", word(line))
		}
		switch fields[1] {
		case "master":
			master = true
			if _, rest, ok := strings.Cut(line, "[failed: "); ok {
				number, _, closed := strings.Cut(rest, "]")
				n, err := strconv.ParseUint(number, 10, 64)
				p.failed, p.failedKnown = n, closed && err == nil
			}
		case "worker":
			w := Worker{PID: int(pid), State: "current", Old: oldSection}
			if oldSection {
				w.State = "old"
			}
			p.workers = append(p.workers, w)
		}
	}
	if !master {
		return procs{}, fmt.Errorf("no master in %q", word(string(answer)))
	}
	return p, nil
}

// frontends is the sum over the frontends of one worker.
type frontends struct {
	accepted, open, requests uint64
}

// parseFrontends reads the CSV of "show stat" (management guide, section 9.1).
// Columns are found by name, for each version appends some.
func parseFrontends(answer []byte) (frontends, error) {
	if !bytes.HasPrefix(answer, []byte("# ")) {
		return frontends{}, fmt.Errorf("%q is no table of statistics", word(string(answer)))
	}
	rows := csv.NewReader(bytes.NewReader(answer[2:]))
	rows.FieldsPerRecord, rows.LazyQuotes = -1, true
	head, err := rows.Read()
	if err != nil {
		return frontends{}, err
	}
	var f frontends
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return f, nil
		} else if err != nil {
			return frontends{}, err
		}
		for _, c := range []struct {
			name string
			sum  *uint64
			must bool
		}{{"conn_tot", &f.accepted, true}, {"scur", &f.open, true}, {"req_tot", &f.requests, false}} {
			n, err := cell(head, row, c.name)
			if err != nil && c.must {
				return frontends{}, err
			}
			*c.sum += n
		}
	}
}

// cell is a number in a table. What has none (a TCP frontend has no requests) is
// empty, which is an error here.
func cell(head, row []string, name string) (uint64, error) {
	i := slices.Index(head, name)
	if i < 0 || i >= len(row) {
		return 0, fmt.Errorf("no column %s", name)
	}
	n, err := strconv.ParseUint(row[i], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, not a number", name, word(row[i]))
	}
	return n, nil
}
