package console

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Text differs from what it stands on by 4.5:1 (WCAG 2.2, 1.4.3), shapes by
// 3:1 (1.4.11), in light and in dark. The states also differ from each other,
// so that a greyscale print tells them apart before one looks at the shapes.
func TestStyle_CanBeReadInLightAndInDark(t *testing.T) {
	light, dark, found := strings.Cut(string(styleCSS), "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("style.css has no dark mode")
	}
	for mode, css := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		atLeast := func(ratio float64, fore, back string) {
			t.Helper()
			for _, name := range []string{fore, back} {
				if _, ok := colours[name]; !ok {
					t.Fatalf("%s: there is no colour %s", mode, name)
				}
			}
			if got := contrast(colours[fore], colours[back]); got < ratio {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", mode, fore, back, got, ratio)
			}
		}
		for _, back := range []string{"page", "raised"} {
			for _, text := range []string{"text", "quiet", "link"} {
				atLeast(4.5, text, back)
			}
			for _, shape := range []string{"good", "warn", "bad", "unknown"} {
				atLeast(3, shape, back)
			}
		}
		// 1.6: the palette's own least, computed; see README.md.
		atLeast(1.6, "good", "bad")
		atLeast(1.6, "good", "warn")
		atLeast(1.6, "warn", "bad")
	}
}

// luminance is the relative luminance of an sRGB colour (WCAG 2.2, definition).
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	var linear [3]float64
	for i := range linear {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(fmt.Errorf("colour %s: %w", hex, err))
		}
		c := float64(n) / 255
		if linear[i] = c / 12.92; c > 0.04045 {
			linear[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*linear[0] + 0.7152*linear[1] + 0.0722*linear[2]
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }
