package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/engine/memory"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/alerting/notify"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// closeAfter and interval are those of the house's one service.
const (
	closeAfter = 3 * time.Second
	interval   = time.Second
)

func lb() policy.Policy {
	return policy.Policy{
		Services: []policy.Service{{
			Name: "lb", Region: "par", Instances: []string{"lb-1"}, CloseAfter: closeAfter, Runbook: "https://wiki.example/lb",
			Checks: []policy.Check{
				{ID: "lb/http", Kind: checks.KindHTTP, Interval: interval},
				{ID: "lb/workers", Kind: checks.KindWorkers, Instance: "lb-1", Interval: interval},
			},
		}},
		Places: []policy.Place{{Name: "a", Network: "n1", Region: "par"}, {Name: "b", Network: "n2", Region: "par"}},
	}
}

// house is the world of engines that follow one another: what they share and
// what was heard of them. It lives in a synctest bubble.
type house struct {
	t       *testing.T
	results memory.Results
	journal memory.Journal
	asker   memory.Asker
	policy  policy.Policy
	seq     uint64

	// mu guards the fields below.
	mu      sync.Mutex
	notices []notify.Notice
}

func newHouse(t *testing.T) *house { return &house{t: t, policy: lb()} }

// life is one engine from its start to its end.
type life struct {
	*engine.Engine
	h     *house
	end   context.CancelFunc
	ended chan error
}

// boot starts an engine over the house's stores. through may put something
// between it and the journal.
func (h *house) boot(through ...func(engine.Journal, context.CancelFunc) engine.Journal) *life {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	var j engine.Journal = &h.journal
	for _, wrap := range through {
		j = wrap(j, cancel)
	}
	e, err := engine.New(
		engine.Config{Policy: h.policy, ConsoleURL: "http://127.0.0.1:8080"},
		engine.Deps{Results: &h.results, Journal: j, Asker: &h.asker, Post: h.hear, Log: slog.New(slog.DiscardHandler)},
	)
	if err != nil {
		h.t.Fatal(err)
	}
	l := &life{Engine: e, h: h, end: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- e.Run(ctx) }()
	h.t.Cleanup(func() { l.end(); synctest.Wait() })
	synctest.Wait()
	return l
}

// kill ends the engine and waits until nothing of it runs.
func (l *life) kill() {
	l.h.t.Helper()
	l.end()
	if err := <-l.ended; err != nil {
		l.h.t.Fatalf("Run: got %v, want nil when its context ends", err)
	}
}

func (l *life) isReady() bool {
	select {
	case <-l.Ready():
		return true
	default:
		return false
	}
}

func (h *house) hear(notices ...notify.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = append(h.notices, notices...)
}

// heard returns the notices posted since the last call.
func (h *house) heard() []notify.Notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.notices
	h.notices = nil
	return n
}

// words shortens notices to what they do: "KEY SEVERITY firing|resolved".
func words(notices []notify.Notice) []string {
	out := []string{}
	for _, n := range notices {
		does := "resolved"
		if n.Firing {
			does = "firing"
		}
		out = append(out, n.Key()+" "+n.Severity+" "+does)
	}
	return out
}

// steps reads the journal's steps, independently of the engine's own reader.
func (h *house) steps(kind incident.StepKind) []incident.Step {
	h.t.Helper()
	var out []incident.Step
	_, err := h.journal.Read(context.Background(), 0, func(e engine.Entry) error {
		var body struct{ Steps []incident.Step }
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		for _, s := range body.Steps {
			if s.Kind == kind {
				out = append(out, s)
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *house) entries(kind string) int {
	h.t.Helper()
	n := 0
	_, err := h.journal.Read(context.Background(), 0, func(e engine.Entry) error {
		if e.Kind == kind {
			n++
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// publish stores one piece of evidence.
func (h *house) publish(v evidence.Vantage, check string, waited time.Duration, f checks.Finding) {
	h.t.Helper()
	h.seq++
	body, err := evidence.Encode(evidence.Batch{Boot: "boot-1", Evidence: []evidence.Evidence{{Check: check, Seq: h.seq, Waited: waited, Finding: f}}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.results.Publish(v.Place, v.Name, "any", body)
}

var (
	agent  = evidence.Vantage{Place: "host", Name: "agent"}
	probes = []evidence.Vantage{{Place: "a", Name: "p"}, {Place: "b", Name: "p"}}

	serving = checks.Finding{Outcome: checks.Pass, Workers: &checks.WorkerFacts{
		Main: checks.Process{PID: 100, State: checks.ProcAlive}, Generation: "100.1", Serving: 4, Expected: 4, LivingWorkers: 4, EverServed: true,
	}}
	looping = checks.Finding{Outcome: checks.Fail, Suspicious: true, Urgent: true, Workers: &checks.WorkerFacts{
		Main: checks.Process{PID: 100, State: checks.ProcAlive}, Generation: "100.1", Expected: 4, EverServed: true,
		NoneLooks: 9, NoneFor: 300 * time.Millisecond, Chain: 3, ChainFor: 250 * time.Millisecond, Died: 12,
	}}
	passing = checks.Finding{Outcome: checks.Pass}
)

// fault is the agent's proof of a crash loop, and nothing from outside yet.
func (h *house) fault() { h.publish(agent, "lb/workers", 0, looping) }

// healthy is a round in which all is well.
func (h *house) healthy() {
	for _, p := range probes {
		h.publish(p, "lb/http", 0, passing)
	}
	h.publish(agent, "lb/workers", 0, serving)
}

// during lets d pass with a round every interval.
func (h *house) during(d time.Duration, round func()) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		round()
		time.Sleep(min(interval, time.Until(end)))
	}
	synctest.Wait()
}

// hooked is a journal with something done before and after an append.
type hooked struct {
	engine.Journal
	before func(kind string) error // an error: not appended
	after  func(kind string) error // an error: appended, and the answer lost
}

func (h hooked) Append(ctx context.Context, last uint64, kind string, body []byte) (uint64, error) {
	if h.before != nil {
		if err := h.before(kind); err != nil {
			return 0, err
		}
	}
	seq, err := h.Journal.Append(ctx, last, kind, body)
	if err == nil && h.after != nil {
		if err := h.after(kind); err != nil {
			return 0, err
		}
	}
	return seq, err
}

var errLost = errors.New("connection lost")

// once returns a hook that fails the first append of a kind.
func once(kind string, do func()) func(string) error {
	armed := true
	return func(k string) error {
		if k != kind || !armed {
			return nil
		}
		armed = false
		if do != nil {
			do()
		}
		return errLost
	}
}
