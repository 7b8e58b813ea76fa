package portcheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/checks/inside"
)

// Facts are the observer's words in the vocabulary of checks. What takes more
// than one snapshot (queues, our own connection, stopping) is left out.
func Facts(l *host.Listener, mainAlive bool, now time.Duration) *checks.ListenerFacts {
	f := &checks.ListenerFacts{
		Listener: name(l.Addr, l.Path), Listening: l.Listening, Sockets: l.Sockets, OwnersUnknown: l.OwnersUnknown,
		Queue: l.Queue, Backlog: l.Backlog, EverListening: l.EverListening, AbsentDumps: l.AbsentDumps, AbsentFor: l.AbsentFor,
		Held: l.Held, MainAlive: mainAlive,
	}
	for i := range l.Owners {
		f.Owners = append(f.Owners, inside.Process(&l.Owners[i].Process, l.Owners[i].Role, now))
	}
	strangers := 0
	for _, s := range l.Group {
		if s.Foreign {
			strangers++
		}
	}
	if strangers > 0 {
		f.ForeignLooks, f.ForeignFor = l.ForeignLook, max(0, now-l.ForeignSince)
		f.LostShare = float64(strangers) / float64(len(l.Group))
	}
	return f
}

// Conclude turns facts into the outcome of one look.
func Conclude(l *checks.ListenerFacts) checks.Finding {
	f := checks.Finding{Outcome: checks.Pass, Listener: l}
	switch {
	case !l.Listening && l.Stopping:
		f.Outcome, f.Reason = checks.Warn, checks.ReasonStopping
		f.Detail = "nobody listens on " + l.Listener + ": the service is stopping"
	case !l.Listening:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonNotListening
		f.Detail = "nobody listens on " + l.Listener
		if l.Held {
			f.Detail += ", though the service still holds the socket that did (shut down, not closed)"
		}
	case l.ForeignLooks > 0:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonForeignOwner
		f.Detail = fmt.Sprintf("%.0f %% of %s belongs to a stranger: %s", 100*l.LostShare, l.Listener, holders(l))
	case l.LocalFails > 0 && l.Local == checks.LocalAccepted:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonNoProgress
		f.Detail = fmt.Sprintf("our own connection to %s was taken and not answered, %d times", l.Listener, l.LocalFails)
	case l.FullDumps > 0 && l.LocalFails == 0: // a burst, as far as we know
		f.Outcome, f.Reason = checks.Warn, checks.ReasonQueueStuck
		f.Detail = fmt.Sprintf("%d connections to %s wait, its limit is %d", l.Queue, l.Listener, l.Backlog)
	case l.LocalFails > 0:
		f.Outcome, f.Reason = checks.Fail, checks.ReasonQueueStuck
		f.Detail = fmt.Sprintf("%d connections to %s wait and nobody takes them (backlog %d)", l.Queue, l.Listener, l.Backlog)
	case len(l.Owners) > 0:
		f.Detail = "held by " + holders(l)
	case l.OwnersUnknown != "":
		f.Detail = "listening, owner unknown: " + l.OwnersUnknown
	default:
		f.Detail = "listening"
	}
	return f
}

func holders(l *checks.ListenerFacts) string {
	var who []string
	for _, o := range l.Owners {
		who = append(who, fmt.Sprintf("%s %s %d", o.Role, o.Comm, o.PID))
	}
	return strings.Join(who, ", ")
}
