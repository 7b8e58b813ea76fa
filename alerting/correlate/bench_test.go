package correlate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/policy"
	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

// BenchmarkObserve judges a healthy fleet: 1,000 services, each with a public
// check seen from three places, its workers and its port. One operation is one
// piece of evidence.
func BenchmarkObserve(b *testing.B) {
	const services = 1000
	p := policy.Policy{Places: []policy.Place{
		{Name: "a", Network: "n1", Region: "par"}, {Name: "b", Network: "n2", Region: "par"}, {Name: "c", Network: "n3", Region: "par"},
	}}
	type source struct {
		vantage evidence.Vantage
		kind    checks.Kind
		finding checks.Finding
	}
	pass := checks.Finding{Outcome: checks.Pass}
	sources := []source{
		{evidence.Vantage{Place: "a", Name: "p"}, checks.KindHTTP, pass},
		{evidence.Vantage{Place: "b", Name: "p"}, checks.KindHTTP, pass},
		{evidence.Vantage{Place: "c", Name: "p"}, checks.KindHTTP, pass},
		{agent, checks.KindWorkers, checks.Finding{Outcome: checks.Pass, Workers: &checks.WorkerFacts{
			Main: checks.Process{State: checks.ProcAlive}, Generation: "100.1", Serving: 4, Expected: 4, LivingWorkers: 4, EverServed: true,
		}}},
		{agent, checks.KindPort, checks.Finding{Outcome: checks.Pass, Listener: &checks.ListenerFacts{
			Listener: "tcp 192.0.2.1:443", Listening: true, EverListening: true, MainAlive: true,
		}}},
	}
	ids := make([][]string, services)
	for i := range services {
		name := fmt.Sprintf("service-%04d", i)
		s := policy.Service{Name: name, Region: "par", Instances: []string{"i"}}
		for _, k := range []checks.Kind{checks.KindHTTP, checks.KindWorkers, checks.KindPort} {
			c := policy.Check{ID: name + "/" + string(k), Kind: k, Interval: 2 * time.Second}
			if k.Inside() {
				c.Instance = "i"
			}
			s.Checks = append(s.Checks, c)
		}
		for _, src := range sources {
			ids[i] = append(ids[i], name+"/"+string(src.kind))
		}
		p.Services = append(p.Services, s)
	}
	j, err := correlate.New(p)
	if err != nil {
		b.Fatal(err)
	}
	// Every source looks once in two seconds, spread evenly.
	pause := 2 * time.Second / time.Duration(services*len(sources))
	now, n := start, 0
	observe := func() {
		src := &sources[n%len(sources)]
		e := evidence.Stored{At: now, Evidence: evidence.Evidence{
			Check: ids[n/len(sources)%services][n%len(sources)], Vantage: src.vantage, Boot: "boot-1", Seq: uint64(n + 1), Finding: src.finding,
		}}
		j.Observe(e, now)
		n++
		now = now.Add(pause)
	}
	for range services * len(sources) { // until every service is up
		observe()
	}
	b.ReportAllocs()
	for b.Loop() {
		observe()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "evidence/s")
	for _, st := range j.States() {
		if st.Verdict != correlate.Up {
			b.Fatalf("%s is %s, want up: the benchmark measured something else", st.Scope, st.Verdict)
		}
	}
}
