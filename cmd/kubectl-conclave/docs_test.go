package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/testing/documents"
)

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot, []string{"docs/kubectl.md", "docs/chaos.md", "docs/simulation.md"}, "kubectl-conclave")
}

func TestDocumentedSimulationsRun(t *testing.T) {
	for _, c := range documents.Commands(t) {
		line := strings.ReplaceAll(strings.Join(c.Words, " "), " 1000000", " 10") // schedules
		if _, flags, found := strings.Cut(line, "conclave simulate "); found {
			if got := runCommand(t, nil, append([]string{"simulate"}, strings.Fields(flags)...)...); got.status != 0 {
				t.Errorf("%s: exit status %d: %s", c, got.status, got.stderr)
			}
		}
	}
}

// generatedDiagram matches a diagram in docs/algorithms and the command that
// generates it.
var generatedDiagram = regexp.MustCompile("(?s)<!-- made by: kubectl conclave (.*?) -->\n\n```mermaid\n(.*?)```\n")

func TestDocumentedDiagramsAreGenerated(t *testing.T) {
	pages := algorithmPages(t)
	for _, name := range catalog.Names() {
		page := pages[name]
		diagrams := generatedDiagram.FindAllStringSubmatch(page, -1)
		if len(diagrams) == 0 || len(diagrams) != strings.Count(page, "```mermaid") {
			t.Errorf("the page of %s: got %d diagrams with their command, want all %d", name, len(diagrams),
				strings.Count(page, "```mermaid"))
		}
		for _, d := range diagrams {
			if !strings.Contains(d[1], "--algorithm "+name+" ") {
				t.Errorf("the page of %s: got a diagram of another algorithm: %s", name, d[1])
			}
			if got := runCommand(t, nil, strings.Fields(d[1])...); got.status != 0 || got.stdout != d[2] {
				t.Errorf("%s: exit status %d, %s\ngot\n%swant, as on the page of %s,\n%s", d[1], got.status, got.stderr, got.stdout, name, d[2])
			}
		}
	}
}

func TestAlgorithmPagesHaveAllSections(t *testing.T) {
	pages := algorithmPages(t)
	for _, name := range catalog.Names() {
		for _, section := range []string{
			"## The rules", "## What it assumes", "## What it costs", "## What it doesn't guarantee", "## In the agent",
		} {
			if !strings.Contains(pages[name], "\n"+section+"\n") {
				t.Errorf("the page of %s has no section %q", name, section)
			}
		}
	}
}

// algorithmPages returns the pages of docs/algorithms by their titles.
func algorithmPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/algorithms/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, file := range files {
		page, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(string(page), "\n")
		pages[strings.TrimPrefix(title, "# ")] = string(page)
	}
	return pages
}
