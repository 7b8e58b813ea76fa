package jobs_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/host"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/cmd/internal/jobs"
)

func TestStatus_OfNobodyOfAWrongPlaceAndOfAPage(t *testing.T) {
	if jobs.Status(config.Status{}) != nil {
		t.Error("a server is asked though none is configured")
	}
	if _, err := jobs.Status(config.Status{Server: "sozu", Place: "here"})(t.Context()); err == nil || !strings.Contains(err.Error(), "absolute path") {
		t.Errorf("a wrong place: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096))
			fmt.Fprint(conn, "HTTP/1.0 200 OK\r\n\r\nActive connections: 1 \nserver accepts handled requests\n 41 41 50 \nReading: 0 Writing: 1 Waiting: 0 \n")
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	said, err := jobs.Status(config.Status{Server: "nginx", Place: "http://" + l.Addr().String()})(t.Context())
	if err != nil || said.Accepted != 41 || !said.AcceptedKnown || said.OutOfBand || !strings.HasPrefix(said.Text, "nginx: ") {
		t.Errorf("a page: %+v, %v", said, err)
	}
}

func TestAccepted_OfInstancesWhoseServerIsAsked(t *testing.T) {
	inside := []config.InsideCheck{
		{ID: "web/port", Service: "web", Instance: "web-1", Kind: checks.KindPort, Target: "web/web-1"},
		{ID: "web/workers", Service: "web", Instance: "web-1", Kind: checks.KindWorkers, Target: "web/web-1", Status: config.Status{Server: "uwsgi", Place: "/run/stats"}},
		{ID: "db/workers", Service: "db", Instance: "db-1", Kind: checks.KindWorkers, Target: "db/db-1"},
	}
	observer, err := host.New(host.Config{Targets: []host.Target{{Name: "web/web-1", PIDFile: "/run/web.pid"}, {Name: "db/db-1", PIDFile: "/run/db.pid"}}}, host.Deps{})
	if err != nil {
		t.Skipf("no host observer here: %v", err)
	}
	live, closers := jobs.Agent(inside, observer)
	for _, c := range closers {
		defer c.Close()
	}
	all := jobs.Accepted(inside, live)
	if len(all) != 1 || all[0].Service != "web" || all[0].Instance != "web-1" {
		t.Fatalf("Accepted() = %+v, want web-1 of web", all)
	}
	if _, known := all[0].Count(); known {
		t.Error("a count is known of a server that was never asked")
	}
}
