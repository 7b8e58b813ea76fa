package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
)

func good() policy.Policy {
	return policy.Policy{
		Services: []policy.Service{{
			Name: "lb", Region: "par", Instances: []string{"lb-1", "lb-2"},
			Checks: []policy.Check{
				{ID: "lb/http", Kind: checks.KindHTTP, Interval: time.Second},
				{ID: "lb/workers", Kind: checks.KindWorkers, Instance: "lb-1", Interval: time.Second},
				{ID: "lb/80", Kind: checks.KindPort, Instance: "lb-1", Interval: time.Second},
				{ID: "lb/443", Kind: checks.KindPort, Instance: "lb-1", Interval: time.Second},
			},
		}},
		Places: []policy.Place{{Name: "a", Network: "n1", Region: "par"}},
	}
}

func TestValidate_RefusesWhatWouldMakeJudgingAmbiguous(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(p *policy.Policy, s *policy.Service)
		want  string // empty: accepted
	}{
		{"nothing", func(*policy.Policy, *policy.Service) {}, ""},
		{"no service at all", func(p *policy.Policy, _ *policy.Service) { *p = policy.Policy{} }, ""},
		{"a service without a name", func(_ *policy.Policy, s *policy.Service) { s.Name = "" }, "both must be named"},
		{"a service without a region", func(_ *policy.Policy, s *policy.Service) { s.Region = "" }, "both must be named"},
		{"a service twice", func(p *policy.Policy, s *policy.Service) { p.Services = append(p.Services, *s) }, `service "lb" twice`},
		{"an instance twice", func(_ *policy.Policy, s *policy.Service) { s.Instances = append(s.Instances, "lb-1") }, `instance "lb-1" without a name or twice`},
		{"an instance without a name", func(_ *policy.Policy, s *policy.Service) { s.Instances = append(s.Instances, "") }, "without a name or twice"},
		{"a negative time to close", func(_ *policy.Policy, s *policy.Service) { s.CloseAfter = -1 }, "neither may be negative"},
		{"a negative grace", func(_ *policy.Policy, s *policy.Service) { s.RestartGrace = -1 }, "neither may be negative"},
		{"a check without an id", func(_ *policy.Policy, s *policy.Service) { s.Checks[0].ID = "" }, "empty or twice"},
		{"a check twice", func(_ *policy.Policy, s *policy.Service) { s.Checks[0].ID = "lb/80" }, `check id "lb/80" empty or twice`},
		{"a check without an interval", func(_ *policy.Policy, s *policy.Service) { s.Checks[0].Interval = 0 }, "interval 0s"},
		{"a check of a foreign instance", func(_ *policy.Policy, s *policy.Service) { s.Checks[0].Instance = "www-1" }, `instance "www-1" is not one of service "lb"`},
		{"an inside check of nobody", func(_ *policy.Policy, s *policy.Service) { s.Checks[1].Instance = "" }, "an inside check needs an instance"},
		{"workers watched twice", func(_ *policy.Policy, s *policy.Service) { s.Checks[2].Kind = checks.KindWorkers }, `a second workers check of instance "lb-1"`},
		{"workers of two instances", func(_ *policy.Policy, s *policy.Service) {
			s.Checks[2].Kind, s.Checks[2].Instance = checks.KindWorkers, "lb-2"
		}, ""},
		{"a place without a network", func(p *policy.Policy, _ *policy.Service) { p.Places[0].Network = "" }, "must be set"},
		{"a place twice", func(p *policy.Policy, _ *policy.Service) { p.Places = append(p.Places, p.Places[0]) }, `place "a" twice`},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := good()
			row.spoil(&p, &p.Services[0])
			err := p.Validate()
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("Validate: got %v, want %q", err, row.want)
			}
		})
	}
}

func TestValidity_IsTwoAndAHalfIntervals(t *testing.T) {
	if got := (policy.Check{Interval: 2 * time.Second}).Validity(); got != 5*time.Second {
		t.Errorf("Validity at an interval of 2s: got %s, want 5s", got)
	}
}
