package layers_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// budget is how many lines of Go the parts of this repository have at most: see docs/adr/0049-a-budget-of-lines.md.
var budget = map[string]int{"product": 63_300, "tests": 79_000, "tools": 11_400}

// part returns to which part a file belongs.
func part(name string) string {
	switch top, _, _ := strings.Cut(name, "/"); {
	case strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "internal/testing/"),
		strings.HasPrefix(name, "internal/election/electiontest/"):
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
		must.Succeed(t, err)
		lines[part(name)] += bytes.Count(text, []byte("\n"))
	}
	for part, most := range budget {
		t.Logf("%s: %d lines of Go, at most %d", part, lines[part], most)
		expect.AtMostf(t, lines[part], most, "lines of Go in %s (delete something first)", part)
	}
}

// TestRequirementsStayFew: each module needs upgrades of its own, and each requirement is code that users trust.
// Requirements of tests with other projects belong to test/thirdparty.
func TestRequirementsStayFew(t *testing.T) {
	const modulesMax, requirementsMax = 8, 26
	var modules, requirements []string
	walk(t, func(name string) {
		if filepath.Base(name) == "go.mod" {
			modules = append(modules, name)
		}
	})
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") { // Those that are indirect have a comment.
			requirements = append(requirements, fields[0])
		}
	}
	t.Logf("%d modules, %d direct requirements", len(modules), len(requirements))
	if n := len(modules); n == 0 || n > modulesMax {
		t.Errorf("got %d modules %q, want at most %d", n, modules, modulesMax)
	}
	if n := len(requirements); n == 0 || n > requirementsMax {
		t.Errorf("go.mod has %d direct requirements %q, want at most %d", n, requirements, requirementsMax)
	}
}
