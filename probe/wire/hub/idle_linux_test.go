package hub_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/probe/wire"
)

// BenchmarkIdle measures what hub, reader and one listener for asks cost while
// nothing happens: CPU per second of wall time, and memory. One round lasts 20 s.
func BenchmarkIdle(b *testing.B) {
	c := connect(b, benchHub(b, b.TempDir()))
	go func() { _ = c.ReadResults(b.Context(), time.Time{}, func(wire.Message) error { return nil }) }()
	stop, err := c.Asks("par", "p1", func([]byte) {})
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	runtime.GC()
	debug.FreeOSMemory()
	const round = 20 * time.Second
	before, rounds := cpuTime(b), 0
	for b.Loop() {
		time.Sleep(round)
		rounds++
	}
	wall := time.Duration(rounds) * round
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/wall.Seconds(), "cpu-us/s")
	b.ReportMetric(residentMB(b), "rss-MB")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func residentMB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
