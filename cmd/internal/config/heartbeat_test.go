package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
)

func TestCompile_HeartbeatsReachTheirKind(t *testing.T) {
	for name, tt := range map[string]struct {
		keys string
		want heartbeat.Config
	}{
		"the least":            {"every: 30s", heartbeat.Config{Every: 30 * time.Second, Grace: 15 * time.Second}},
		"no grace":             {"{every: 30s, grace: 0s}", heartbeat.Config{Every: 30 * time.Second}},
		"a socket":             {"{every: 1m, grace: 10s, socket: /run/a.sock}", heartbeat.Config{Every: time.Minute, Grace: 10 * time.Second, Socket: "/run/a.sock"}},
		"an abstract socket":   {"{every: 1m, grace: 10s, socket: '@a'}", heartbeat.Config{Every: time.Minute, Grace: 10 * time.Second, Socket: "@a"}},
		"workers by name":      {"{every: 24h, grace: 1h, workers: [a, b]}", heartbeat.Config{Every: 24 * time.Hour, Grace: time.Hour, Workers: []string{"a", "b"}}},
		"workers by their pid": {"{every: 1s, grace: 1s, worker_count: 4, socket: '@mail'}", heartbeat.Config{Every: time.Second, Grace: time.Second, Count: 4, Socket: "@mail"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.keys[0] != '{' {
				tt.keys = "{" + tt.keys + "}"
			}
			file := parse(t, "services: [{name: mail, checks: [heartbeat: "+tt.keys+"]}]")
			got := config.Compile(file)
			tt.want.ID = "mail/heartbeat"
			want := []config.InsideCheck{{ID: "mail/heartbeat", Service: "mail", Instance: "mail", Kind: checks.KindHeartbeat, Target: "mail/mail",
				Heartbeat: &tt.want, Interval: 5 * time.Second, Timeout: time.Second}}
			if diff := cmp.Diff(want, got.Inside, comparable); diff != "" {
				t.Errorf("Inside (-want +got):\n%s", diff)
			}
			if len(got.Targets) != 0 {
				t.Errorf("Targets = %+v, want none: nothing of it is looked at", got.Targets)
			}
			if err := got.Policy.Validate(); err != nil {
				t.Errorf("Policy: %v", err)
			}
			for _, w := range file.Warnings() {
				if strings.HasPrefix(w, "service ") {
					t.Errorf("warning %q of a workload that listens on nothing", w)
				}
			}
		})
	}
}
