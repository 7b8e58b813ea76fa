package host_test

import (
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/host"
)

func TestGlance_ReadsWhoMayHaveBeenStopped(t *testing.T) {
	t.Parallel()
	const every, ms = host.GlanceEvery, time.Millisecond
	for name, tt := range map[string]struct {
		clocks []time.Duration // at each glance
		want   []bool
	}{
		"at rest, then told to stop":       {[]time.Duration{5 * ms, 5 * ms, 5*ms + 40*time.Microsecond, 5*ms + 40*time.Microsecond}, []bool{false, false, true, false}},
		"a request now and then":           {[]time.Duration{5 * ms, 6 * ms, 7 * ms}, []bool{false, true, true}},
		"busy, and stopped at a glance":    {[]time.Duration{0, every / 2, every, every}, []bool{false, false, false, true}},
		"busy, and stopped in the middle":  {[]time.Duration{ms, ms + every/2, ms + every/2 + every/4, ms + every/2 + every/4}, []bool{false, false, false, true}},
		"never ran":                        {[]time.Duration{ms, ms, ms}, []bool{false, false, false}},
		"ran once, before the last glance": {[]time.Duration{ms, ms + every/2, ms + every/2, ms + every/2}, []bool{false, false, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := host.MayHaveStopped()
			for i, clock := range tt.clocks {
				if got := stopped(clock); got != tt.want[i] {
					t.Errorf("glance %d at a clock of %s: %t, want %t", i, clock, got, tt.want[i])
				}
			}
		})
	}
}
