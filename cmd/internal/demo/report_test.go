package demo

import (
	"os"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

func TestReport_ChecksWhatTheFaultMustLeadTo(t *testing.T) {
	good := Report{Listener: lab.Shared, Verdict: correlate.Degraded, Cause: correlate.CauseWorkersFrozen, Worker: 4711, Tickets: 1, TicketResolves: 1,
		Told: "public-lb par DEGRADED: worker 4711 stopped"}
	for name, row := range map[string]struct {
		fault  string
		change func(*Report)
		want   string // in the error; empty for none
	}{
		"one ticket that names the worker":         {"freeze-one", func(*Report) {}, ""},
		"another verdict":                          {"freeze-one", func(r *Report) { r.Verdict = correlate.Down }, "verdict down"},
		"another cause":                            {"freeze-one", func(r *Report) { r.Cause = correlate.CauseWorkersDead }, "workers_dead"},
		"a page beside the ticket":                 {"freeze-one", func(r *Report) { r.Pages, r.Resolves = 1, 1 }, "1 pages"},
		"a page where a socket of its own is lost": {"freeze-one", func(r *Report) { r.Listener, r.Pages, r.Resolves = lab.Reuseport, 1, 1 }, "1 pages"},
		"nobody told of it":                        {"freeze-one", func(r *Report) { r.Listener, r.Tickets, r.TicketResolves = lab.Reuseport, 0, 0 }, "0 tickets"},
		"two tickets":                              {"freeze-one", func(r *Report) { r.Tickets, r.TicketResolves = 2, 2 }, "2 tickets"},
		"a ticket that stays":                      {"freeze-one", func(r *Report) { r.TicketResolves = 0 }, "0 resolves"},
		"a ticket that names nobody":               {"freeze-one", func(r *Report) { r.Told = "worker 14711 stopped" }, "names worker 4711"},
		"a ticket that rose to a page": {"steal-port", func(r *Report) {
			r.Verdict, r.Cause, r.Worker, r.Pages, r.Resolves = correlate.Down, correlate.CausePortStolen, 0, 1, 1
		}, ""},
		"a ticket that must not be": {"freeze-all", func(r *Report) {
			r.Verdict, r.Worker, r.Pages, r.Resolves = correlate.Down, 0, 1, 1
		}, "1 tickets"},
		"beside the workers a page": {"steal-port", func(r *Report) {
			r.Listener, r.Cause, r.Worker, r.Pages, r.Resolves, r.Tickets, r.TicketResolves = lab.Reuseport, correlate.CausePortStolen, 0, 1, 1, 0, 0
		}, ""},
		"beside the workers a ticket is not enough": {"steal-port", func(r *Report) {
			r.Listener, r.Cause, r.Worker = lab.Reuseport, correlate.CausePortStolen, 0
		}, "0 pages"},
		"alone a ticket is not enough": {"steal-port", func(r *Report) {
			r.Verdict, r.Cause, r.Worker = correlate.Down, correlate.CausePortStolen, 0
		}, "0 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			r.Fault = row.fault
			var err error
			if r.expected, err = faultNamed(row.fault); err != nil {
				t.Fatal(err)
			}
			row.change(&r)
			switch err = r.Check(); {
			case row.want == "" && err != nil:
				t.Errorf("Check() = %v, want nil", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("Check() = %v, want %q", err, row.want)
			}
		})
	}
}

func TestReadme_ListsEveryFault(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Faults() {
		if !strings.Contains(string(raw), "`"+f+"`") {
			t.Errorf("README.md says nothing of %s", f)
		}
	}
}
