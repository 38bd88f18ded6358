package config

import "strings"

// nearest is the known name that a typo most likely meant, or "".
func nearest(word string, known []string) string {
	best, least := "", 3
	plain := strings.ToLower(strings.ReplaceAll(word, "-", "_"))
	for _, k := range known {
		d := distance(plain, k)
		if strings.ReplaceAll(plain, "_", "") == strings.ReplaceAll(k, "_", "") {
			d = 0 // camelCase and the like
		}
		if d < least && d*2 < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that
// turn one word into the other (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
