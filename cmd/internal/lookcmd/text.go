package lookcmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
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
		printListeners(&b, r.Listeners)
		printWorkers(&b, f.Workers)
		if said := f.Workers.Source; said != "" && !strings.Contains(f.Detail, said) {
			fmt.Fprintf(&b, "it says of itself: %s\n", said)
		}
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
	if l.Local != "" {
		fmt.Fprintf(b, "our own connection: %s\n", l.Local)
	}
	if l.OwnersUnknown != "" {
		fmt.Fprintf(b, "owners unknown: %s\n", l.OwnersUnknown)
	}
	if len(l.Group) > 0 {
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  SOCKET\tQUEUE\tBACKLOG\tNOT FALLING FOR\tSTRANGER'S")
		for _, s := range l.Group {
			fmt.Fprintf(t, "  %d\t%d\t%d\t%s\t%s\n", s.Inode, s.Queue, s.Backlog, short(s.QueueFor), yes(s.Foreign))
		}
		_ = t.Flush() // into a buffer
	}
	printProcesses(b, l.Owners, false)
}

// printListeners prints a line per listener of a main process.
func printListeners(b *bytes.Buffer, all []*checks.ListenerFacts) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  LISTENER\tSTATE\tQUEUE\tBACKLOG\tSOCKETS\tOURS\tOWNERS")
	for _, l := range all {
		state := "listening"
		switch {
		case l.Listening:
		case l.Held:
			state = "shut down"
		default:
			state = "nobody"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%d\t%d\t%s\t%s\n", l.Listener, state, l.Queue, l.Backlog, l.Sockets, dash(string(l.Local)), ownersOf(l))
	}
	_ = t.Flush() // into a buffer
}

// ownersOf counts the owners by role and program: "main nginx 12, 4 worker nginx".
func ownersOf(l *checks.ListenerFacts) string {
	if len(l.Owners) == 0 {
		return dash(l.OwnersUnknown)
	}
	count, order := map[string][]int{}, []string{}
	for _, o := range l.Owners {
		k := string(o.Role) + " " + o.Comm
		if count[k] == nil {
			order = append(order, k)
		}
		count[k] = append(count[k], o.PID)
	}
	var parts []string
	for _, k := range order {
		if pids := count[k]; len(pids) == 1 {
			parts = append(parts, fmt.Sprintf("%s %d", k, pids[0]))
		} else {
			parts = append(parts, fmt.Sprintf("%d x %s", len(pids), k))
		}
	}
	return strings.Join(parts, ", ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
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
	if w.Local != "" {
		fmt.Fprintf(b, "our own connection: %s\n", w.Local)
	}
	if w.OOMKills > 0 {
		fmt.Fprintf(b, "killed for memory in its control group within a minute: %d\n", w.OOMKills)
	}
	if w.StaleConfig != "" {
		fmt.Fprintf(b, "%s is newer than every worker: not loaded, or refused\n", w.StaleConfig)
	}
	if h := w.Host; h != nil && h.Starved {
		b.WriteString("the host lacks CPU")
		if h.Burner != "" {
			fmt.Fprintf(b, "; most is used by control group %s", h.Burner)
		}
		b.WriteString("\n")
	}
}

// printProcesses prints a line per process; only the workers kind knows who
// serves and what each uses.
func printProcesses(b *bytes.Buffer, all []checks.Process, workers bool) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	if workers {
		fmt.Fprintln(t, "  PID\tROLE\tSTATE\tAGE\tCPU\tLISTENS\tNAME\t")
	} else {
		fmt.Fprintln(t, "  PID\tROLE\tSTATE\tAGE\tLISTENS\tNAME")
	}
	for i := range all {
		p := &all[i]
		listens := yes(p.Listens)
		if p.FDsUnknown {
			listens = "?"
		}
		if !workers {
			fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\n", p.PID, p.Role, p.State, short(p.Age), listens, p.Comm)
			continue
		}
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.PID, roleOf(p), p.State, short(p.Age), percent(p.CPU), listens, p.Comm, remark(p))
	}
	_ = t.Flush() // into a buffer
}

// roleOf is a process's part as a person asks for it.
func roleOf(p *checks.Process) string {
	switch {
	case p.Role == checks.RoleMain && p.Serving:
		return "main, serving"
	case p.Role != checks.RoleWorker:
		return string(p.Role)
	case p.Serving:
		return "serving"
	case p.State == checks.ProcAlive && p.Age < workercheck.StartTime:
		return "new"
	}
	return "not serving"
}

// remark is what is odd about a process.
func remark(p *checks.Process) string {
	var parts []string
	if p.StoppedFor > 0 {
		by := ""
		switch {
		case p.CgroupFrozen:
			by = " by its control group"
		case p.Tracer != "":
			by = " by " + p.Tracer
		}
		parts = append(parts, "stopped for "+short(p.StoppedFor)+by)
	}
	if p.SpinFor > 0 {
		parts = append(parts, "runs without a break for "+short(p.SpinFor))
	}
	if p.FDsExhausted {
		parts = append(parts, "no free descriptor")
	}
	return strings.Join(parts, ", ")
}

func percent(share float64) string {
	if share < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
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
