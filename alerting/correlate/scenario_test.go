package correlate_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// start is when every story begins.
var start = time.Date(2026, 8, 27, 15, 55, 0, 0, time.UTC)

// scenario is one file of testdata; its README section says how to write one.
type scenario struct {
	Story   string           `yaml:"story"`
	Service scenarioService  `yaml:"service"`
	Places  []policy.Place   `yaml:"places"`
	Sights  map[string]sight `yaml:"sights"`
	Steps   []step           `yaml:"steps"`
}

type scenarioService struct {
	Name         string          `yaml:"name"`
	Region       string          `yaml:"region"`
	Instances    []string        `yaml:"instances"`
	RestartGrace time.Duration   `yaml:"restart_grace"`
	Checks       []scenarioCheck `yaml:"checks"`
}

type scenarioCheck struct {
	Name         string        `yaml:"name"`
	Kind         checks.Kind   `yaml:"kind"`
	Instance     string        `yaml:"instance"`
	Interval     time.Duration `yaml:"interval"`
	ScheduleOnly bool          `yaml:"schedule_only"`
}

// sight is evidence before it is given an identity.
type sight struct {
	From       string          `yaml:"from"`  // "place/vantage"; host/agent for inside sights
	Check      string          `yaml:"check"` // its name within the service
	Outcome    string          `yaml:"outcome"`
	Reason     checks.Reason   `yaml:"reason"`
	Detail     string          `yaml:"detail"`
	Suspicious bool            `yaml:"suspicious"`
	Boot       string          `yaml:"boot"`
	Waited     time.Duration   `yaml:"waited"`
	Took       time.Duration   `yaml:"took"`
	Workers    *workersSight   `yaml:"workers"`
	Listener   *listenerSight  `yaml:"listener"`
	Heartbeat  *heartbeatSight `yaml:"heartbeat"`
}

type step struct {
	At time.Duration `yaml:"at"`
	// See are names of sights, "PLACE passes", "PLACE fails REASON", "PLACE is
	// blind" (the first public check, from PLACE/prober), or "again": the last
	// evidence is delivered once more.
	See    []string `yaml:"see"`
	Expect expect   `yaml:"expect"`
}

// expect checks what it names.
type expect struct {
	Verdict   string    `yaml:"verdict"`
	Cause     *string   `yaml:"cause"`
	Because   *string   `yaml:"because"`
	Rule      *string   `yaml:"rule"`
	Certainty *string   `yaml:"certainty"`
	Effects   *[]string `yaml:"effects"`
	Instance  *string   `yaml:"instance"`
	Page      *bool     `yaml:"page"`
	Outside   *string   `yaml:"outside"` // "FAILING of VOTING"
	Onset     *string   `yaml:"onset"`   // since the start
	Says      string    `yaml:"says"`    // part of the sentence
	Asks      *[]string `yaml:"asks"`    // "CHECK at PLACE/VANTAGE", in order
	Duplicate *uint64   `yaml:"duplicate"`
	Late      *uint64   `yaml:"late"`
	Unknown   *uint64   `yaml:"unknown"`
}

func (s scenario) policy() policy.Policy {
	sv := policy.Service{Name: s.Service.Name, Region: s.Service.Region, Instances: s.Service.Instances, RestartGrace: s.Service.RestartGrace}
	for _, c := range s.Service.Checks {
		sv.Checks = append(sv.Checks, policy.Check{ID: s.Service.Name + "/" + c.Name, Kind: c.Kind, Instance: c.Instance, Interval: c.Interval, ScheduleOnly: c.ScheduleOnly})
	}
	return policy.Policy{Services: []policy.Service{sv}, Places: s.Places}
}

func (s scenario) resolve(name string) (sight, error) {
	if found, ok := s.Sights[name]; ok {
		return found, nil
	}
	public := ""
	for _, c := range s.Service.Checks {
		if !c.Kind.Inside() && c.Instance == "" {
			public = c.Name
			break
		}
	}
	words := strings.Fields(name)
	out := sight{From: words[0] + "/prober", Check: public}
	switch {
	case len(words) == 2 && words[1] == "passes":
		out.Outcome = "pass"
	case len(words) == 3 && words[1] == "fails":
		out.Outcome, out.Reason, out.Detail = "fail", checks.Reason(words[2]), words[2]+" from "+words[0]
	case len(words) == 3 && words[1] == "is" && words[2] == "blind":
		out.Outcome, out.Reason = "blind", checks.ReasonOwnNetwork
	default:
		return sight{}, fmt.Errorf("no sight is called %q", name)
	}
	return out, nil
}

// teller gives sights their identity.
type teller struct {
	scenario scenario
	seq      map[string]uint64 // by vantage and boot
	last     evidence.Stored
}

func (tl *teller) tell(name string, at time.Duration) (evidence.Stored, error) {
	if name == "again" {
		return tl.last, nil
	}
	s, err := tl.scenario.resolve(name)
	if err != nil {
		return evidence.Stored{}, err
	}
	place, vantage, _ := strings.Cut(s.From, "/")
	if s.From == "" {
		place, vantage = "host", "agent"
	}
	if s.Boot == "" {
		s.Boot = "boot-1"
	}
	tl.seq[place+vantage+s.Boot]++
	e := evidence.Stored{
		At: start.Add(at),
		Evidence: evidence.Evidence{
			Check: tl.scenario.Service.Name + "/" + s.Check, Vantage: evidence.Vantage{Place: place, Name: vantage},
			Boot: s.Boot, Seq: tl.seq[place+vantage+s.Boot], Waited: s.Waited,
			Finding: checks.Finding{Reason: s.Reason, Detail: s.Detail, Suspicious: s.Suspicious, Duration: s.Took},
		},
	}
	if err := e.Finding.Outcome.UnmarshalText([]byte(s.Outcome)); err != nil {
		return e, err
	}
	if s.Outcome != e.Finding.Outcome.String() && s.Outcome != "from the future" {
		return e, fmt.Errorf("sight %q has the outcome %q", name, s.Outcome)
	}
	if s.Workers != nil {
		e.Finding.Workers = s.Workers.facts()
	}
	if s.Listener != nil {
		e.Finding.Listener = s.Listener.facts(s.Check)
	}
	if s.Heartbeat != nil {
		e.Finding.Heartbeat = s.Heartbeat.facts()
	}
	tl.last = e
	return e, nil
}

func TestScenarios_EveryStoryEndsAsTold(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) < 20 {
		t.Fatalf("testdata/*.yml: got %d files and error %v, want at least 20 and none", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yml"), func(t *testing.T) {
			tellStory(t, load(t, file))
		})
	}
}

func load(t *testing.T, file string) scenario {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var s scenario
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if s.Story == "" || len(s.Steps) == 0 {
		t.Fatalf("%s: want a story and steps", file)
	}
	return s
}

// common are sights that a story may leave unused.
var common = []string{"four serve", "443 is bound"}

func tellStory(t *testing.T, s scenario) {
	j, err := correlate.New(s.policy())
	if err != nil {
		t.Fatal(err)
	}
	tl := &teller{scenario: s, seq: map[string]uint64{}}
	for name := range s.Sights {
		if !slices.ContainsFunc(s.Steps, func(st step) bool { return slices.Contains(st.See, name) }) && !slices.Contains(common, name) {
			t.Errorf("nobody sees %q", name)
		}
	}
	for _, step := range s.Steps {
		now := start.Add(step.At)
		j.Advance(now)
		for _, name := range step.See {
			e, err := tl.tell(name, step.At)
			if err != nil {
				t.Fatalf("at %s: %v", step.At, err)
			}
			j.Observe(e, now)
		}
		var asks []string
		for _, a := range j.Asks() {
			asks = append(asks, fmt.Sprintf("%s at %s", strings.TrimPrefix(a.Check, s.Service.Name+"/"), a.Vantage))
		}
		step.Expect.check(t, fmt.Sprintf("at %s, after %q", step.At, step.See), j.States()[0], asks, j.Counts())
	}
}

func (x expect) check(t *testing.T, when string, st correlate.State, asks []string, counts correlate.Counts) {
	t.Helper()
	same := func(what, got string, want *string) {
		t.Helper()
		if want != nil && got != *want {
			t.Errorf("%s: %s: got %q, want %q\n%+v", when, what, got, *want, st)
		}
	}
	if x.Verdict != "" {
		same("verdict", st.Verdict.String(), &x.Verdict)
	}
	same("cause", string(st.Cause), x.Cause)
	same("because", string(st.Because), x.Because)
	same("rule", st.Rule, x.Rule)
	same("certainty", string(st.Certainty), x.Certainty)
	same("instance", st.Scope.Instance, x.Instance)
	same("outside", fmt.Sprintf("%d of %d", st.Tally.Failing, st.Tally.Voting), x.Outside)
	same("onset", st.Onset.Sub(start).String(), x.Onset)
	if x.Page != nil && st.Page != *x.Page {
		t.Errorf("%s: page: got %t, want %t", when, st.Page, *x.Page)
	}
	if !strings.Contains(st.Sentence, x.Says) {
		t.Errorf("%s: sentence: got %q, want it to say %q", when, st.Sentence, x.Says)
	}
	if x.Effects != nil {
		var got []string
		for _, e := range st.Effects {
			got = append(got, string(e))
		}
		if !slices.Equal(got, *x.Effects) {
			t.Errorf("%s: effects: got %q, want %q", when, got, *x.Effects)
		}
	}
	if x.Asks != nil {
		if diff := cmp.Diff(*x.Asks, append([]string{}, asks...)); diff != "" {
			t.Errorf("%s: asks (-want +got):\n%s", when, diff)
		}
	}
	for _, c := range []struct {
		name string
		got  uint64
		want *uint64
	}{{"duplicate", counts.Duplicate, x.Duplicate}, {"late", counts.Late, x.Late}, {"unknown", counts.Unknown, x.Unknown}} {
		if c.want != nil && c.got != *c.want {
			t.Errorf("%s: %s evidence so far: got %d, want %d", when, c.name, c.got, *c.want)
		}
	}
}
