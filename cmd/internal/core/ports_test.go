package core_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/engine/enginetest"
	"github.com/crosscheck-project/crosscheck/cmd/internal/core"
	"github.com/crosscheck-project/crosscheck/probe/wire"
	"github.com/crosscheck-project/crosscheck/probe/wire/hub"
)

// store is one hub; each open is a client of its own. That a hub finds its
// store again after a restart is hub's own test.
type store struct{ hub *hub.Hub }

func (s *store) open(t *testing.T) *wire.Client {
	t.Helper()
	if s.hub == nil {
		h, err := hub.Start(t.Context(), hub.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s.hub = h
		t.Cleanup(h.Stop)
	}
	c, err := wire.Connect(s.hub.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestJournal_KeepsTheEnginesContractOnTheWire(t *testing.T) {
	stores := map[*testing.T]*store{}
	enginetest.Journal(t, func(t *testing.T) engine.Journal {
		if stores[t] == nil {
			stores[t] = &store{}
		}
		return core.Journal{Wire: stores[t].open(t)}
	})
}

func TestResults_KeepTheEnginesContractOnTheWire(t *testing.T) {
	stores := map[*testing.T]*store{}
	var n atomic.Int64
	enginetest.Results(t, func(t *testing.T) (engine.Results, enginetest.Publisher) {
		if stores[t] == nil {
			stores[t] = &store{}
		}
		c := stores[t].open(t)
		return core.Results{Wire: c}, func(ctx context.Context, place, vantage, kind string, body []byte) error {
			return c.Publish(ctx, place, vantage, kind, "id-"+string(rune('a'+n.Add(1))), body)
		}
	})
}
