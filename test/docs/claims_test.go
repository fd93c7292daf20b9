package docs

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

var (
	section = regexp.MustCompile(`(?m)^## `)
	// row is a row of a table with its first cell, but neither a header nor the line below.
	row   = regexp.MustCompile(`(?m)^\| ?(.*?) ?\| (.*) \|$`)
	above = regexp.MustCompile(`(?m)^\|.*\n\|-.*\n`)
	dated = regexp.MustCompile("^.*`.+`.*\\| .+ \\| (20\\d\\d-\\d\\d-\\d\\d(, )?)+$")
)

// claims returns what a README says of the product: the bold words of the list above the first section, the rows of all
// tables, and the other sections.
func claims(readme string) (all []string) {
	plain := strings.NewReplacer("`", "", "*", "").Replace(linked.ReplaceAllString(fence.ReplaceAllString(readme, ""), "$1"))
	parts := section.Split(plain, -1)
	for _, bullet := range regexp.MustCompile(`(?m)^- (\w+)\. `).FindAllStringSubmatch(parts[0], -1) {
		all = append(all, bullet[1])
	}
	for _, part := range parts[1:] {
		title, _, _ := strings.Cut(part, "\n")
		rows := row.FindAllStringSubmatch(above.ReplaceAllString(part, ""), -1)
		for _, cells := range rows {
			all = append(all, cells[1])
		}
		if rows == nil && title != "Documents" {
			all = append(all, title)
		}
	}
	return all
}

// problems compares the first table of a page with the claims.
func problems(page string, claims []string) (found []string) {
	table, _, _ := strings.Cut(page, "\n## ")
	rows := map[string]bool{}
	for _, cells := range row.FindAllStringSubmatch(above.ReplaceAllString(table, ""), -1) {
		if !dated.MatchString(cells[2]) {
			found = append(found, "a command, a result and a date are missing: "+cells[0])
		}
		for claim := range strings.SplitSeq(cells[1], "; ") {
			rows[claim] = true
		}
	}
	for _, claim := range claims {
		if !rows[claim] {
			found = append(found, "no row has the claim: "+claim)
		}
		delete(rows, claim)
	}
	for _, claim := range slices.Sorted(maps.Keys(rows)) {
		found = append(found, "the README doesn't say: "+claim)
	}
	return found
}

func TestEveryClaimHasARow(t *testing.T) {
	page := read(t, filepath.Join(root, "docs/how-we-know.md"))
	all := claims(read(t, filepath.Join(root, "README.md")))
	expect.AtLeastf(t, len(all), 20, "claims in README.md")
	for _, problem := range problems(page, all) {
		t.Errorf("how-we-know.md: %s", problem)
	}
	expect.AtMostf(t, len(strings.Fields(page)), 600, "words in how-we-know.md")
}

func TestMissingRowsAreDetected(t *testing.T) {
	readme := "- **Fast.** x\n- no claim\n\n## Table\n| a | b |\n|---|---|\n| [x](y) `z` | 1 |\n\n## Text\nx\n## Documents\n"
	expect.DeepEqualf(t, claims(readme), []string{"Fast", "x z", "Text"}, "claims")
	head := "| a | b | c | d |\n|---|---|---|---|\n"
	for page, want := range map[string]int{
		"| Fast; x z | `make` | ok | 2026-11-30, 2026-12-01 |\n| Text | `make` | ok | 2026-11-30 |\n": 0,
		"| Fast; x z | `make` | ok | 2026-11-30 |\n\n## More\n| Text | `make` | ok | 2026-11-30 |\n":  1,
		"| Fast; x z; Text; Small | `make` | ok | 2026-11-30 |\n":                                     1,
		"| Fast; x z; Text | make | ok | 2026-11-30 |\n":                                              1,
		"| Fast; x z; Text | `make` | ok | soon |\n":                                                  1,
	} {
		expect.Lenf(t, problems(head+page, claims(readme)), want, "problems of %q", page)
	}
}
