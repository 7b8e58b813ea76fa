package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams and the heads of their subjects.
const (
	StreamResults = "RESULTS" // results.<place>.<vantage>.<kind>
	StreamEvents  = "EVENTS"  // events.<kind>

	headResults = "results"
	headEvents  = "events"
	headAsk     = "ask"
)

// Limits of the streams.
const (
	// DefaultResultsBytes bounds RESULTS. Chosen: 1,000 results/s for half an
	// hour, or a small installation's 72 h, on any disk.
	DefaultResultsBytes = 1 << 30
	// resultsAge and eventsAge: results are samples, decisions are kept a year
	// and a month.
	resultsAge = 72 * time.Hour
	eventsAge  = 400 * 24 * time.Hour
	// duplicateWindow is how long a message id is remembered. Chosen: a retry
	// later than that is caught by the sequence in the body.
	duplicateWindow = 2 * time.Minute
)

// Streams says how the streams are to be.
type Streams struct {
	// ResultsBytes bounds RESULTS; zero means DefaultResultsBytes. The oldest
	// results go first.
	ResultsBytes int64
}

// EnsureStreams creates the streams, or brings existing ones to these settings.
// It deletes nothing.
func (c *Client) EnsureStreams(ctx context.Context, s Streams) error {
	if s.ResultsBytes == 0 {
		s.ResultsBytes = DefaultResultsBytes
	}
	for _, cfg := range []jetstream.StreamConfig{
		{
			Name: StreamResults, Subjects: []string{headResults + ".*.*.*"},
			Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: 1,
			MaxAge: resultsAge, MaxBytes: s.ResultsBytes, Discard: jetstream.DiscardOld,
			Duplicates: duplicateWindow,
		},
		{
			Name: StreamEvents, Subjects: []string{headEvents + ".*"},
			Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: 1,
			// A full store refuses the next decision rather than forget an old one.
			MaxAge: eventsAge, MaxBytes: -1, Discard: jetstream.DiscardNew,
			DenyDelete: true, DenyPurge: true,
			Duplicates: duplicateWindow,
		},
	} {
		if _, err := c.js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("create or update stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

// StreamNames lists the streams the server has.
func (c *Client) StreamNames(ctx context.Context) ([]string, error) {
	lister := c.js.StreamNames(ctx)
	var names []string
	for n := range lister.Name() {
		names = append(names, n)
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return names, nil
}
