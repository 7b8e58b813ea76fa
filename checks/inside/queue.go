package inside

import (
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
)

// queueGap is the least time between two dumps that are compared (JUDGING
// section 3: the LISTEN dump runs every 100 ms; closer ones, of a suspicious
// target, would make three of them a matter of 75 ms). Less by a tenth, because
// the dumps have a jitter of their own.
const queueGap = host.DumpEvery * 9 / 10

// Queue follows the accept queues of one listener from dump to dump. The zero
// value is ready.
type Queue struct {
	at    time.Duration // of the last dump that was compared
	sum   waiting
	full  int
	group map[uint64]waiting // by inode
}

// waiting is a queue that has been above 0 and has not fallen.
type waiting struct {
	length uint32
	dumps  int
	first  time.Duration
}

// next takes the length in one more dump.
func (w *waiting) next(length uint32, at time.Duration) {
	switch {
	case length == 0:
		*w = waiting{}
	case w.dumps == 0 || length < w.length:
		*w = waiting{length: length, dumps: 1, first: at}
	default:
		w.length, w.dumps = length, w.dumps+1
	}
}

// Observe takes a listener as of the dump that ended at. Dumps taken before, or
// too soon after the last, are passed over.
func (q *Queue) Observe(l *host.Listener, at time.Duration) {
	if at-q.at < queueGap && q.at != 0 {
		return
	}
	q.at = at
	var sum uint32
	full := false
	before := q.group
	q.group = nil
	for _, s := range sockets(l) {
		sum += s.Queue
		full = full || s.Queue > s.Backlog
		if s.Queue == 0 {
			continue
		}
		w := before[s.Inode]
		w.next(s.Queue, at)
		if q.group == nil {
			q.group = map[uint64]waiting{}
		}
		q.group[s.Inode] = w
	}
	q.sum.next(sum, at)
	if q.full++; !full {
		q.full = 0
	}
}

// sockets are the sockets of a listener; a longest queue alone stands for them
// where they are not told one by one.
func sockets(l *host.Listener) []host.Socket {
	if len(l.Group) == 0 && l.Listening {
		return []host.Socket{{Queue: l.Queue, Backlog: l.Backlog}}
	}
	return l.Group
}

// Dumps is for how many dumps connections have waited without becoming fewer,
// and For how long.
func (q *Queue) Dumps() int         { return q.sum.dumps }
func (q *Queue) For() time.Duration { return q.sum.span(q.at) }

// Full is for how many dumps a queue has been longer than its backlog.
func (q *Queue) Full() int { return q.full }

func (w waiting) span(at time.Duration) time.Duration {
	if w.dumps == 0 {
		return 0
	}
	return at - w.first
}

// Group tells the sockets one by one; nil if nobody waits and no stranger holds
// one.
func (q *Queue) Group(l *host.Listener) []checks.SocketFacts {
	odd := false
	out := make([]checks.SocketFacts, 0, len(l.Group))
	for _, s := range l.Group {
		w := q.group[s.Inode]
		odd = odd || s.Queue > 0 || s.Foreign
		out = append(out, checks.SocketFacts{Inode: s.Inode, Queue: s.Queue, Backlog: s.Backlog,
			QueueDumps: w.dumps, QueueFor: w.span(q.at), Foreign: s.Foreign})
	}
	if !odd {
		return nil
	}
	return out
}
