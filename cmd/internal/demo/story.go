package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// story tells a person what happens, a line at a time: seconds since the first
// line, who speaks, what it says.
type story struct {
	out   io.Writer
	color bool
	start time.Time
}

func newStory(out io.Writer, color bool) *story {
	return &story{out: out, color: color, start: time.Now()}
}

// The colours, as ECMA-48 SGR parameters. Words carry the meaning; colour only
// helps the eye.
const (
	plain = ""
	dim   = "2"
	red   = "1;31"
	green = "1;32"
	amber = "1;33"
)

func (s *story) line(color, who, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	who = fmt.Sprintf("%-16s", who)
	if s.color && color != plain {
		who = "\x1b[" + color + "m" + who + "\x1b[0m"
	}
	fmt.Fprintf(s.out, "%6.1fs  %s %s\n", time.Since(s.start).Seconds(), who, text)
}

func (s *story) title() {
	fmt.Fprintln(s.out, "Crosscheck demo: a live main process with dead workers goes DOWN and pages somebody;")
	fmt.Fprintln(s.out, "what only looks alike wakes nobody. First column: seconds since the demo began.")
	fmt.Fprintln(s.out)
}

func (s *story) lab(l *lab.Lab, listener string) {
	s.line(plain, "lab", "a load balancer on %s: main process %d and %d workers, %s listener; a dead worker is replaced after %s",
		l.Addr(), l.PID(), workers, listener, respawn)
}

func (s *story) started(console net.Addr) {
	s.line(plain, "crosscheck", "3 probers (paris, london, frankfurt), an agent, the judge and its journal, Alertmanager, a pager")
	s.line(plain, "console", "http://%s", console)
}

func (s *story) healthy(v engine.View) {
	st := v.Services[0]
	s.line(green, "UP", "%s", insideText(st.Evidence))
	s.line(green, "", "%s", outsideText(st.Evidence))
}

func (s *story) inject(f fault) {
	fmt.Fprintln(s.out)
	who := "FAULT"
	if f.lookAlike() {
		who = "LOOK-ALIKE"
	}
	s.line(amber, who, "%s: %s", f.name, f.what)
}

// monitor says what a process monitor would say: it looks at main, and main
// alone.
func (s *story) monitor(l *lab.Lab) {
	if err := syscall.Kill(l.PID(), 0); err != nil && !errors.Is(err, os.ErrPermission) {
		s.line(red, "process monitor", "main process %d is gone", l.PID())
		return
	}
	s.line(green, "process monitor", "main process %d alive: healthy", l.PID())
}

func (s *story) fault(r *Report, l *lab.Lab) {
	s.monitor(l)
	seen := sinceFault(r)
	s.line(plain, "inside", "%s", insideText(seen))
	s.line(plain, "outside", "%s", outsideText(seen))
	bad := red
	if r.Verdict == correlate.Degraded {
		bad = amber
	}
	s.line(bad, "VERDICT", "%s, cause %s (rule %s), %s after the fault",
		strings.ToUpper(r.Verdict.String()), r.Cause, r.Rule, since(r.InjectedAt, r.VerdictAt))
	color, who, at := red, "PAGE", r.PagedAt
	if at.IsZero() {
		color, who, at = amber, "TICKET", r.TicketedAt
	}
	s.line(color, who, "%s after the fault: %s", since(r.InjectedAt, at), r.Sentence)
	fmt.Fprintln(s.out)
}

// later shows what is known once everybody has looked again.
func (s *story) later(v engine.View, severity string) {
	if len(v.Open) == 0 {
		return
	}
	evidence := v.Services[0].Evidence
	s.line(plain, "outside now", "%s", outsideText(evidence))
	s.line(plain, "inside now", "%s", insideText(evidence))
	s.line(plain, "incident", "%s, still one %s", v.Open[0].Incident, severity)
	fmt.Fprintln(s.out)
}

func (s *story) heal() { s.line(amber, "HEAL", "the fault is taken back") }

func (s *story) resolved(r *Report) {
	s.line(green, "RESOLVED", "%s after the healing: everybody must serve, be seen to serve, and go on for %s", since(r.HealedAt, r.ResolvedAt), closeAfter)
}

func (s *story) nothing(r *Report, l *lab.Lab) {
	s.monitor(l)
	s.line(plain, "inside", "%s", insideText(r.Evidence))
	s.line(plain, "outside", "%s", outsideText(r.Evidence))
	s.line(green, strings.ToUpper(r.Verdict.String()), "after %s: nothing to wake anybody for", watchHealthy)
}

func (s *story) end(r *Report, o Options) {
	fmt.Fprintln(s.out)
	s.line(green, "AS EXPECTED", "fault %s, %s listener: verdict %s, pages %d, tickets %d, all resolved", r.Fault, r.Listener, r.Verdict, r.Pages, r.Tickets)
	if o.JSON != "" {
		s.line(dim, "", "report: %s", o.JSON)
	}
}

func (s *story) console(url string) {
	s.line(plain, "console", "%s goes on running; Ctrl-C ends the demo", url)
}

// sinceFault leaves out the looks that ended before the fault: they show nothing
// of it.
func sinceFault(r *Report) []correlate.Ref {
	var refs []correlate.Ref
	for _, e := range r.Evidence {
		if e.At.After(r.InjectedAt.Time) {
			refs = append(refs, e)
		}
	}
	return refs
}

func since(a, b stamp) string {
	if a.IsZero() || b.IsZero() {
		return "at no known time"
	}
	return fmt.Sprintf("%.2f s", b.Sub(a.Time).Seconds())
}

func insideText(refs []correlate.Ref) string { return sideText(refs, correlate.Inside) }

func outsideText(refs []correlate.Ref) string { return sideText(refs, correlate.Outside) }

// sideText lists the findings of one side; equal ones are told once, with the
// places that saw them.
func sideText(refs []correlate.Ref, side correlate.Side) string {
	var texts []string
	places := map[string][]string{}
	for _, r := range refs {
		if r.Side != side {
			continue
		}
		text := strings.ToUpper(r.Outcome.String()) + ": " + r.Detail
		if side == correlate.Inside {
			text = r.Check[strings.IndexByte(r.Check, '/')+1:] + " " + text
		}
		if places[text] == nil {
			texts = append(texts, text)
		}
		places[text] = append(places[text], r.Place)
	}
	if len(texts) == 0 {
		return "no look has ended since the fault; the probers were asked to look and wait for an answer"
	}
	for i, t := range texts {
		if side == correlate.Outside {
			texts[i] = strings.Join(places[t], ", ") + " " + t
		}
	}
	return strings.Join(texts, "; ")
}
