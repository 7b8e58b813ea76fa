package hub_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/probe/wire/hub"
)

func benchHub(b *testing.B, dir string) *hub.Hub {
	b.Helper()
	h, err := hub.Start(b.Context(), hub.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.Stop)
	return h
}

// BenchmarkPublish measures the time from a publish to its acknowledgement, on
// disk, one at a time.
func BenchmarkPublish(b *testing.B) {
	for _, results := range []int{1, 100} {
		b.Run(fmt.Sprintf("results=%d", results), func(b *testing.B) {
			c := connect(b, benchHub(b, b.TempDir()))
			body := bytes.Repeat([]byte("x"), 600*results)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := c.Publish(b.Context(), "par", "p1", "http", strconv.Itoa(len(took)), body); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			reportTimes(b, took)
		})
	}
}

// BenchmarkAppend measures a journal step of 1 kB.
func BenchmarkAppend(b *testing.B) {
	c := connect(b, benchHub(b, b.TempDir()))
	body := bytes.Repeat([]byte("x"), 1000)
	var took []time.Duration
	last := uint64(0)
	for b.Loop() {
		began := time.Now()
		var err error
		if last, err = c.Append(b.Context(), last, "step", body); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	reportTimes(b, took)
}

func reportTimes(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkStart measures a start on an empty store and on one with 10,000
// journal entries, up to the first answer.
func BenchmarkStart(b *testing.B) {
	for _, entries := range []uint64{0, 10_000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			dir := b.TempDir()
			if entries > 0 {
				h := benchHub(b, dir)
				c := connect(b, h)
				for i := range entries {
					if _, err := c.Append(b.Context(), i, "step", bytes.Repeat([]byte("x"), 1000)); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
				h.Stop()
			}
			n := 0
			for b.Loop() {
				d := dir
				if entries == 0 {
					d = fmt.Sprint(dir, "/", n)
					n++
				}
				h := benchHub(b, d)
				c := connect(b, h)
				if _, err := c.StreamNames(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				c.Close()
				h.Stop()
				b.StartTimer()
			}
		})
	}
}
