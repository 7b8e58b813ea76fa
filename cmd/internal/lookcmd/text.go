package lookcmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// printText prints a result for a person.
func printText(w io.Writer, r result) error {
	var b bytes.Buffer
	f := &r.Finding
	fmt.Fprintf(&b, "%s", strings.ToUpper(f.Outcome.String()))
	if f.Reason != "" {
		fmt.Fprintf(&b, " %s", f.Reason)
	}
	fmt.Fprintf(&b, ": %s\n", f.Detail)
	if r.Proof != nil {
		fmt.Fprintf(&b, "cause %s (rule %s): %s\n", r.Proof.Cause, r.Proof.Rule, r.Proof.Text)
	}
	switch {
	case f.HTTP != nil:
		printHTTP(&b, f)
	case f.Listener != nil:
		printListener(&b, f.Listener)
	case f.Workers != nil:
		printWorkers(&b, f.Workers)
	}
	_, err := b.WriteTo(w)
	return err
}

func printHTTP(b *bytes.Buffer, f *checks.Finding) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, p := range f.Phases {
		fmt.Fprintf(t, "  %s\t%s\n", p.Name, short(p.Took))
	}
	fmt.Fprintf(t, "  whole look\t%s\n", short(f.Duration))
	_ = t.Flush() // into a buffer
	h := f.HTTP
	if h.Status != 0 {
		fmt.Fprintf(b, "%s %d from %s, %d bytes\n", h.Proto, h.Status, h.Address, h.BodyBytes)
	}
	if h.Repeat != "" {
		fmt.Fprintf(b, "repeat: %s\n", h.Repeat)
	}
}

func printListener(b *bytes.Buffer, l *checks.ListenerFacts) {
	if l.Listening {
		fmt.Fprintf(b, "%s: %d listening sockets, %d waiting to be accepted (backlog %d)\n", l.Listener, l.Sockets, l.Queue, l.Backlog)
	}
	if l.OwnersUnknown != "" {
		fmt.Fprintf(b, "owners unknown: %s\n", l.OwnersUnknown)
	}
	printProcesses(b, l.Owners, false)
}

func printWorkers(b *bytes.Buffer, w *checks.WorkerFacts) {
	all := w.Workers
	if w.Main.PID != 0 {
		all = append([]checks.Process{w.Main}, all...)
	}
	printProcesses(b, all, true)
	if w.FDsUnknown != "" {
		fmt.Fprintf(b, "who listens is not known of all: %s\n", w.FDsUnknown)
	}
}

// printProcesses prints a line per process; only the workers kind knows who
// serves.
func printProcesses(b *bytes.Buffer, all []checks.Process, serving bool) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	head, column := "", ""
	if serving {
		head = "SERVING\t"
	}
	fmt.Fprintf(t, "  PID\tROLE\tSTATE\tAGE\t%sLISTENS\tNAME\n", head)
	for _, p := range all {
		if serving {
			column = yes(p.Serving) + "\t"
		}
		listens := yes(p.Listens)
		if p.FDsUnknown {
			listens = "?"
		}
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s%s\t%s\n", p.PID, p.Role, p.State, short(p.Age), column, listens, p.Comm)
	}
	_ = t.Flush() // into a buffer
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// short keeps three digits of what a person reads.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}
