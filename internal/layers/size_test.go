package layers_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// budget is how many lines of Go the parts of this repository have at most: see docs/adr/0049-a-budget-of-lines.md.
var budget = map[string]int{"product": 68_750, "tests": 85_180, "tools": 16_600}

// part returns to which part a file belongs.
func part(name string) string {
	switch top, _, _ := strings.Cut(name, "/"); {
	case strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "internal/testing/"), strings.HasPrefix(name, "internal/election/electiontest/"):
		return "tests"
	case top == "hack", top == "test", top == "examples":
		return "tools"
	}
	return "product"
}

func TestSizeStaysWithinBudget(t *testing.T) {
	lines := map[string]int{}
	for name := range sources(t) {
		if strings.HasPrefix(filepath.Base(name), "zz_generated") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		lines[part(name)] += bytes.Count(text, []byte("\n"))
	}
	for part, most := range budget {
		t.Logf("%s: %d lines of Go, at most %d", part, lines[part], most)
		if lines[part] > most {
			t.Errorf("%s has %d lines of Go, want at most %d: delete something, or raise the budget and say in the commit what users get for it", part, lines[part], most)
		}
	}
}
