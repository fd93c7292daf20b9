package command

import (
	"fmt"
	"slices"
	"strings"
)

// Choose returns the name that the user means, in any case. Otherwise, it returns an
// error with all names, and with the one that is most similar.
func Choose(what, given string, names []string) (string, error) {
	if name, known := inAnyCase(given, names); known {
		return name, nil
	}
	return "",
		UsageErrorf("unknown %s %q%s: choose one of %s", what, given, DidYouMean(given, names), strings.Join(names, ", "))
}

// Canonical replaces each name in a comma-separated list that differs from a known one
// only by case. It leaves other names as they are.
func Canonical(list string, names []string) string {
	given := strings.Split(list, ",")
	for i, name := range given {
		if canonical, known := inAnyCase(name, names); known {
			given[i] = canonical
		}
	}
	return strings.Join(given, ",")
}

// inAnyCase finds a name that may be given in another case.
func inAnyCase(given string, names []string) (name string, known bool) {
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, given) })
	if i < 0 {
		return "", false
	}
	return names[i], true
}

// DidYouMean returns a question such as ` (did you mean Bully?)`, or "" if no name is similar to the given one.
func DidYouMean(given string, names []string) string {
	best, least := "", len(given)/2+1 // More changes than half of the letters aren't a typing error.
	for _, name := range names {
		if changes := distance(strings.ToLower(given), strings.ToLower(name)); changes < min(least, 4) {
			best, least = name, changes
		}
	}
	if best == "" || best == given {
		return "" // The name itself isn't a typing error.
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is the number of letters to insert, delete, replace or swap with the next one to get from a to b.
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
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
