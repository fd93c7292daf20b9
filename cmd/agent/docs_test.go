package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot, []string{"docs/agent.md", "docs/clients.md"}, "agent")
}

func TestDocumentedConfigurationIsValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent.md")
	must.Succeed(t, err)
	sample := regexp.MustCompile("(?s)```yaml\n(self: a\n.*?)```").FindSubmatch(page)
	commands := documents.Parse(string(page))
	t.Chdir(t.TempDir())
	if sample == nil || os.WriteFile("a.yaml", sample[1], 0o600) != nil {
		t.Fatal("docs/agent.md must have the configuration a.yaml")
	}
	ran := 0
	for _, c := range commands {
		if c.Complete && c.Words[0] == "conclave-agent" && slices.Contains([]string{"certificates", "check"}, c.Words[1]) {
			ran++
			root := newRoot()
			root.SetOut(t.Output())
			root.SetArgs(c.Words[1:])
			expect.Succeedf(t, root.Execute(), "%q", c.Words)
		}
	}
	if ran != 2 {
		t.Errorf("the quick start has %d commands that create and check a configuration, want 2", ran)
	}
}
