package serverstatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// PHPFPM asks a pool of php-fpm for its status page (pm.status_path), at
// HOST:PORT[/PATH] or SOCKET[:/PATH]; the path is /status if none is given. A
// worker of the pool answers, unless the place is its pm.status_listen, which is
// a pool of its own (PHP 8.0).
func PHPFPM(address string) (Source, error) {
	at, path := address, ""
	if i := strings.LastIndex(address, ":/"); strings.HasPrefix(address, "/") && i > 0 {
		at, path = address[:i], address[i+1:]
	} else if i := strings.Index(address, "/"); i > 0 {
		at, path = address[:i], address[i:]
	}
	p, err := socketOrPort("php-fpm", at)
	return &phpFPM{place: p, path: cleanURI(path, "/status")}, err
}

type phpFPM struct {
	place
	path  string
	asked atomic.Uint64
}

// Read implements Source.
func (p *phpFPM) Read(ctx context.Context) (Status, error) {
	// The number tells this question from earlier ones in the list of workers.
	query := "json&full&crosscheck=" + strconv.FormatUint(p.asked.Add(1), 10)
	answer, err := p.ask(ctx, fcgiGet(p.path, query))
	if err != nil {
		return Status{}, err
	}
	body, err := parseFCGI(answer)
	var s Status
	if err == nil {
		s, err = parseFPM(body, p.path+"?"+query)
	}
	if err != nil {
		return Status{}, p.errorf("%s: %w", word(p.path), err)
	}
	return s, nil
}

// fpmStatus is the part of the page that we read (php-fpm's status page,
// https://www.php.net/manual/en/fpm.status.php). Numbers may be missing in
// versions to come, so that only the pool's name must be there.
type fpmStatus struct {
	Pool      string
	Manager   string `json:"process manager"`
	Accepted  uint64 `json:"accepted conn"`
	Queue     int    `json:"listen queue"`
	QueueLen  int    `json:"listen queue len"`
	MaxedOut  uint64 `json:"max children reached"`
	Processes []struct {
		PID      int
		State    string
		Requests uint64
		URI      string `json:"request uri"`
	}
}

// parseFPM reads the page that was asked for as uri.
func parseFPM(body, uri string) (Status, error) {
	var f fpmStatus
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		return Status{}, fmt.Errorf("%q is no status page: %w", word(body), err)
	}
	if f.Pool == "" {
		return Status{}, errors.New("the page names no pool")
	}
	s := Status{Server: "php-fpm", Accepted: f.Accepted, AcceptedKnown: true, Queue: f.Queue, QueueKnown: true, OutOfBand: true}
	for _, p := range f.Processes {
		w := Worker{PID: p.PID, State: word(p.State), Requests: p.Requests}
		switch {
		case p.PID == 0:
			w.State = "starting" // sent as "(null)": its slot is taken, and not filled in
		case p.State != "Idle" && p.URI == uri:
			s.OutOfBand, w.State = false, "asked" // this very question keeps it busy
		default:
			w.Busy = p.State != "Idle"
		}
		s.Workers = append(s.Workers, w)
	}
	s.Text = fmt.Sprintf("php-fpm pool %s: %d of %s (%s) busy, %s waiting of %d, %d accepted",
		word(f.Pool), count(s.Workers, busy), plural(len(s.Workers), "worker"), word(f.Manager), plural(f.Queue, "connection"), f.QueueLen, f.Accepted)
	if f.MaxedOut > 0 {
		s.Text += fmt.Sprintf(", limit of workers reached %d times", f.MaxedOut)
	}
	return s, nil
}
