// Package serverstatus asks a server what it says of itself: how many workers
// it has, what they do, how many connections it took. What it answers raises
// confidence and decides nothing: a server that is broken may say anything, or
// nothing.
package serverstatus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Source is one way to ask one server.
type Source interface {
	// Read asks once. It returns when ctx ends or Timeout has passed at the latest,
	// and leaves nothing open. Every error names the server and its address; it is
	// ErrNoAnswer if nobody answered in time. Where a worker would have had to, that
	// says nothing beyond it.
	Read(ctx context.Context) (Status, error)
}

// Status is what a server said.
type Status struct {
	// Server is what answered: "haproxy", "php-fpm", "uwsgi", "apache", "nginx",
	// "sozu".
	Server string
	// Text is all of it in one sentence for a person, without a full stop.
	Text string
	// Workers are those it told of, in its own order; nil if it tells of none.
	Workers []Worker
	// Accepted counts the connections it took since its counters began (a reload
	// begins them anew for some); meaningful if AcceptedKnown.
	Accepted      uint64
	AcceptedKnown bool
	// Queue is how many connections wait to be taken, by its own account;
	// meaningful if QueueKnown.
	Queue      int
	QueueKnown bool
	// OutOfBand: somebody else than the workers answered (main, a thread of it, a
	// pool of its own), so that it works while they do not.
	OutOfBand bool
}

// Worker is one worker as its server tells of it. What a server does not tell is
// zero.
type Worker struct {
	PID int
	// State is the server's own word.
	State string
	// Busy: with a request, other than the one we ask with.
	Busy bool
	// Old: of an earlier generation, finishing what it has.
	Old bool
	// Requests it has served since it was born.
	Requests uint64
}

const (
	// Timeout bounds one reading. Chosen: shorter than the 5 s between two
	// readings, and longer than any answer measured (README).
	Timeout = 3 * time.Second
	// answerLimitBytes bounds what is read of an answer. Chosen: 8,000 workers of
	// php-fpm at the 500 bytes each that were measured.
	answerLimitBytes = 4 << 20
	// wordLimit bounds what a server's own word may take of a sentence. Chosen:
	// php-fpm's longest state, "Getting request informations", fits.
	wordLimit = 32
)

// ErrNoAnswer says that nobody answered in time.
var ErrNoAnswer = errors.New("no answer")

// Servers are the names that New knows, in the order of the documentation: those
// that can be asked past their workers first.
func Servers() []string {
	return []string{"haproxy_master", "uwsgi", "sozu", "php_fpm", "apache", "nginx"}
}

// New returns the source of that name at that place: see the constructors for
// what a place is. An error says what is wrong with either.
func New(server, place string) (Source, error) {
	switch server {
	case "haproxy_master":
		return HAProxyMaster(place)
	case "uwsgi":
		return UWSGI(place)
	case "sozu":
		return Sozu(place)
	case "php_fpm":
		return PHPFPM(place)
	case "apache":
		return Apache(place)
	case "nginx":
		return Nginx(place)
	}
	return nil, fmt.Errorf("%q is not one of %s", server, strings.Join(Servers(), ", "))
}

// word makes what a server said fit for a sentence: printable, and short.
func word(s string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), wordLimit)])
	return strings.TrimSpace(clean)
}

// count counts the workers for which ok holds.
func count(all []Worker, ok func(Worker) bool) int {
	n := 0
	for _, w := range all {
		if ok(w) {
			n++
		}
	}
	return n
}

func busy(w Worker) bool { return w.Busy }

// states tells the states of workers, most frequent first: "3 idle, 1 busy".
func states(all []Worker) string {
	type group struct {
		state string
		n     int
	}
	var groups []group
	for _, w := range all {
		i := slices.IndexFunc(groups, func(g group) bool { return g.state == w.State })
		switch {
		case i >= 0:
			groups[i].n++
		case len(groups) < maxStates:
			groups = append(groups, group{w.State, 1})
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int { return b.n - a.n })
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = fmt.Sprintf("%d %s", g.n, g.state)
	}
	return strings.Join(parts, ", ")
}

// maxStates bounds a sentence. Chosen: apache has 11 states, more than anybody.
const maxStates = 12

// maxNamed is how many workers a sentence names one by one. Chosen: so that it
// still reads as a sentence.
const maxNamed = 4

// pids names workers by their process ids: "4711, 4712 and 3 more".
func pids(all []Worker) string {
	var b strings.Builder
	for i, w := range all {
		switch {
		case i == maxNamed:
			fmt.Fprintf(&b, " and %d more", len(all)-i)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", w.PID)
	}
	return b.String()
}

func plural[N int | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
