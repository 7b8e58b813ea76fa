package lookcmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/workercheck"
)

func TestPrintText_ShowsListenersWorkersCauseAndRule(t *testing.T) {
	w := &checks.WorkerFacts{Main: checks.Process{PID: 1, Role: checks.RoleMain, State: checks.ProcAlive, Comm: "nginx", Listens: true, CPU: 0},
		Workers: []checks.Process{
			{PID: 2, Role: checks.RoleWorker, State: checks.ProcAlive, Serving: true, Age: time.Hour, CPU: 0.98, SpinFor: 31 * time.Second, Comm: "nginx"},
			{PID: 3, Role: checks.RoleDraining, State: checks.ProcAlive, Age: time.Hour, CPU: 0.1, Comm: "nginx"},
			{PID: 4, Role: checks.RoleWorker, State: checks.ProcAlive, Age: 100 * time.Millisecond, CPU: -1, Comm: "nginx"},
			{PID: 5, Role: checks.RoleWorker, State: checks.ProcStopped, Age: time.Hour, StoppedFor: 6 * time.Second, Tracer: "gdb 99", Comm: "nginx"},
			{PID: 6, Role: workercheck.RoleHelper, State: checks.ProcAlive, Age: time.Hour, FDsUnknown: true, FDsExhausted: true, Comm: "nginx"},
		}, OOMKills: 2, StaleConfig: "/etc/nginx.conf", Local: checks.LocalAnswered, Host: &checks.HostFacts{Starved: true, Burner: "/batch"}}
	r := result{
		Finding: checks.Finding{Outcome: checks.Warn, Reason: checks.ReasonWorkersStuck, Detail: "some are stuck", Workers: w},
		Proof:   &correlate.Proof{Rule: "P6", Cause: correlate.CauseWorkersSpinning, Text: "1 of 4 spins"},
		Listeners: []*checks.ListenerFacts{
			{Listener: "tcp 127.0.0.1:80", Listening: true, Queue: 7, Backlog: 511, Sockets: 1, Local: checks.LocalAnswered,
				Owners: []checks.Process{{PID: 1, Role: checks.RoleMain, Comm: "nginx"}, {PID: 2, Role: checks.RoleWorker, Comm: "nginx"}, {PID: 3, Role: checks.RoleWorker, Comm: "nginx"}}},
			{Listener: "unix /run/x", Held: true}, {Listener: "tcp 127.0.0.1:81", OwnersUnknown: "needs CAP_SYS_PTRACE"},
		},
	}
	var b bytes.Buffer
	if err := printText(&b, r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range [][]string{
		{"WARN workers_stuck: some are stuck"},
		{"cause workers_spinning (rule P6): 1 of 4 spins"},
		{"tcp 127.0.0.1:80", "listening", "7", "511", "answered", "main nginx 1, 2 x worker nginx"},
		{"unix /run/x", "shut down"},
		{"tcp 127.0.0.1:81", "nobody", "needs CAP_SYS_PTRACE"},
		{"1", "main", "alive", "0%", "yes"},
		{"2", "serving", "98%", "runs without a break for 31s"},
		{"3", "draining", "10%"},
		{"4", "new", "?"},
		{"5", "not serving", "stopped", "stopped for 6s by gdb 99"},
		{"6", "helper", "?", "no free descriptor"},
		{"our own connection: answered"},
		{"killed for memory in its control group within a minute: 2"},
		{"/etc/nginx.conf is newer than every worker"},
		{"the host lacks CPU; most is used by control group /batch"},
	} {
		if !has(lines, want) {
			t.Errorf("no line with %q in\n%s", want, b.String())
		}
	}
}

func has(lines []string, parts []string) bool {
	for _, l := range lines {
		rest, ok := l, true
		for _, p := range parts {
			_, after, found := strings.Cut(rest, p)
			rest, ok = after, ok && found
		}
		if ok {
			return true
		}
	}
	return false
}
