//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/crosscheck-project/crosscheck/cmd/internal/servers"
)

func TestTable_EveryServerAndFaultHasAnExpectationOrAReason(t *testing.T) {
	for _, f := range allFaults() {
		for _, s := range servers.All() {
			matches := slices.ContainsFunc(expectations, func(r row) bool {
				return r.Fault == f.Name && (r.Servers == nil || slices.Contains(r.Servers, s.Name))
			})
			w := expect(s, f.Name)
			switch {
			case !matches:
				t.Errorf("%s/%s: no row names it", s.Name, f.Name)
			case w.Not != "":
			case len(w.Lifecycle) == 0:
				t.Errorf("%s/%s: no lifecycle is expected", s.Name, f.Name)
			case w.quiet() && !f.LookAlike && w.Why == "":
				t.Errorf("%s/%s: a fault that nobody is told of needs a reason", s.Name, f.Name)
			case !w.quiet() && f.LookAlike && w.Why == "":
				t.Errorf("%s/%s: a look-alike that somebody is told of needs a reason", s.Name, f.Name)
			case !w.quiet() && (w.Severity == "" || !w.Verdict.Bad()):
				t.Errorf("%s/%s: cause %v with verdict %s and no severity", s.Name, f.Name, w.Causes, w.Verdict)
			}
		}
	}
}

func TestTable_EveryRowIsOfUse(t *testing.T) {
	known := names(servers.All(), func(s servers.Spec) string { return s.Name })
	faults := names(allFaults(), func(f fault) string { return f.Name })
	for i, r := range expectations {
		if !slices.Contains(faults, r.Fault) {
			t.Errorf("row %d: no fault %q", i, r.Fault)
		}
		for _, s := range r.Servers {
			if !slices.Contains(known, s) {
				t.Errorf("row %d (%s): no server %q", i, r.Fault, s)
			}
			for _, before := range expectations[:i] {
				if before.Fault == r.Fault && (before.Servers == nil || slices.Contains(before.Servers, s)) {
					t.Errorf("row %d (%s): %s is decided by an earlier row", i, r.Fault, s)
				}
			}
		}
	}
}

func TestFaults_AreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range allFaults() {
		if seen[f.Name] || f.Name == "" || f.Title == "" || f.Do == nil {
			t.Errorf("fault %q: twice, or without a title or a deed", f.Name)
		}
		seen[f.Name] = true
		if f.LookAlike && f.Window == 0 {
			t.Errorf("look-alike %s has no window", f.Name)
		}
	}
}

// Whatever the server can, a look-alike that needs it is not left out.
func TestTable_AgreesWithWhatServersCan(t *testing.T) {
	for _, s := range servers.All() {
		for fault, can := range map[string]bool{"recycle": s.Recycles, "upgrade": s.Upgrades, "intruder": s.Reuseport, "zero": s.Elastic,
			"stop": s.Drain != 0 && s.Downloads && s.Name != "uwsgi"} {
			if there := expect(s, fault).Not == ""; there != can {
				t.Errorf("%s/%s: in the table %t, the server can %t", s.Name, fault, there, can)
			}
		}
	}
}

func TestSelectCells_RefusesWhatThereIsNot(t *testing.T) {
	for _, o := range []options{{servers: "nginx,iis"}, {faults: "crash-loop,earthquake"}} {
		if cells, err := selectCells(o); err == nil {
			t.Errorf("selectCells(%+v) = %d cells, want an error", o, len(cells))
		}
	}
	cells, err := selectCells(options{servers: "nginx", faults: "idle,zero", rounds: 3})
	if err != nil || len(cells) != 3 {
		t.Errorf("3 rounds of what nginx does: %v, %v, want idle three times", cells, err)
	}
}
