package memory_test

import (
	"context"
	"testing"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/engine/enginetest"
	"github.com/crosscheck-project/crosscheck/alerting/engine/memory"
)

// perTest returns the store of a test, the same at every call with one t.
func perTest[S any]() func(t *testing.T) *S {
	stores := map[*testing.T]*S{}
	return func(t *testing.T) *S {
		if stores[t] == nil {
			stores[t] = new(S)
		}
		return stores[t]
	}
}

func TestJournal_KeepsTheContract(t *testing.T) {
	store := perTest[memory.Journal]()
	enginetest.Journal(t, func(t *testing.T) engine.Journal { return store(t) })
}

func TestResults_KeepTheContract(t *testing.T) {
	store := perTest[memory.Results]()
	enginetest.Results(t, func(t *testing.T) (engine.Results, enginetest.Publisher) {
		r := store(t)
		return r, func(_ context.Context, place, vantage, kind string, body []byte) error {
			r.Publish(place, vantage, kind, body)
			return nil
		}
	})
}

func TestAsker_RemembersWhatWasAsked(t *testing.T) {
	var a memory.Asker
	if err := a.Ask("par", "p1", "lb/http", "inside"); err != nil {
		t.Fatal(err)
	}
	want := memory.Asked{Place: "par", Vantage: "p1", Check: "lb/http", Trigger: "inside"}
	if got := a.Asked(); len(got) != 1 || got[0] != want {
		t.Errorf("Asked: got %v, want %v alone", got, want)
	}
}
