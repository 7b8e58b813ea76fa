package config

import "strings"

// hint says what the author of an unknown key may have meant: a key of the
// same mapping that is spelt alike, or a key of the mapping around it or inside it.
func hint(unknown, path string, known []string) string {
	best, bestDistance := "", 3 // chosen: two slips of the finger
	for _, k := range known {
		d := distance(strings.ToLower(unknown), k)
		if d < bestDistance && d < len(k) {
			best, bestDistance = k, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	here, nearest := pattern(path), ""
	for _, d := range Keys() {
		owner, name, nested := cutLast(d.Path, ".")
		related := strings.HasPrefix(here, owner) || strings.HasPrefix(owner, here)
		if nested && name == unknown && owner != here && related && len(owner) > len(nearest) {
			nearest = owner
		}
	}
	if nearest != "" {
		return "; " + unknown + " belongs to " + nearest
	}
	return "; known are " + strings.Join(known, ", ")
}

// pattern turns services[2].checks[0] into services[].checks[].
func pattern(path string) string {
	var b strings.Builder
	inside := false
	for _, r := range path {
		if r == ']' {
			inside = false
		}
		if !inside {
			b.WriteRune(r)
		}
		if r == '[' {
			inside = true
		}
	}
	return b.String()
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// distance is the Levenshtein distance of a and b in bytes. Keys longer than
// 40 bytes are far from everything.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := diagonal
			if a[i-1] != b[j-1] {
				substitute++
			}
			diagonal = row[j]
			row[j] = min(row[j]+1, row[j-1]+1, substitute)
		}
	}
	return row[len(b)]
}
