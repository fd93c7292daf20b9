package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const (
	page          = "../../docs/kubectl.md"
	generatedFrom = "<!-- Below, from the help texts: go test ./cmd/kubectl-conclave -run " +
		"TestPageHasTheHelpTexts -update -->\n"
	pageColumns = 120
)

func TestPageHasTheHelpTexts(t *testing.T) {
	written, _, _ := strings.Cut(string(must.ReadFile(t, page)), generatedFrom)
	root := newRoot()
	text := written + generatedFrom + "\n" + paragraphs(root.Long)
	for _, command := range root.Commands() {
		if command.IsAvailableCommand() && command.Name() != "simulate" { // docs/simulation.md has that.
			text += section(command)
		}
	}
	golden.Compare(t, page, strings.TrimSpace(text)+"\n")
	expect.AtMostf(t, len(strings.Fields(text)), 3000, "words in %s (shorten the help texts)", page)
}

// section is the part of the page about a command.
func section(command *cobra.Command) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.Flags().VisitAll(func(f *pflag.Flag) {
		// The page has kubectl's flags once.
		if !slices.Contains([]string{"kubeconfig", "context", "namespace", "help"}, f.Name) {
			own.AddFlag(f)
		}
	})
	own.SortFlags = command.Flags().SortFlags
	text := fmt.Sprintf("## %s\n\n%s%s", command.Name(), paragraphs(command.Long), block("", command.Example))
	return text + block("text", own.FlagUsagesWrapped(pageColumns))
}

// paragraphs makes Markdown from a help text: lines that begin with spaces become a block of code.
func paragraphs(text string) (markdown string) {
	var lines []string
	code := false
	end := func() {
		if part := strings.Join(lines, "\n"); code {
			markdown += block("text", part)
		} else if part = strings.TrimSpace(part); part != "" {
			markdown += part + "\n\n"
		}
		lines = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != code {
			end()
			code = indented
		}
		lines = append(lines, line)
	}
	end()
	return markdown
}

// block is a block of code in Markdown.
func block(language, text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return "```" + language + "\n" + strings.TrimRight(text, " \n") + "\n```\n\n"
}

// Without the permission to forward ports, explain and status print what the group's status contains, and one line
// about what is missing.
func TestExplainWithoutPortForwarding(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	g.Spec.Service = &v1.CoordinatorService{Name: "ledger", Via: v1.ViaAgents, Ports: []v1.ServicePort{{Port: 80}}}
	must.Succeed(t, e.Update(t.Context(), g))
	const user = "viewer@example.org"
	e.createViewer(t, user, rbacv1.PolicyRule{
		APIGroups: []string{v1.GroupVersion.Group}, Resources: []string{"electiongroups"}, Verbs: []string{"get"},
	})
	const permission = " requires the permission to create pods/portforward in namespace bank"
	expect.Containsf(t, e.runCommand(t, "status", "ledger", "--as", user).stdout,
		"\n\nConnections: not shown: reading them from agents"+permission+"\n", "status")
	const reason = "reading the agents' journals" + permission
	got := e.runCommand(t, "explain", "ledger", "--as", user)
	if want := "\n\nLast election\n  Not shown: " + reason + ".\n"; got.status != 0 ||
		!strings.HasPrefix(got.stdout, "Coordinator\n  ledger-2 has been") || !strings.HasSuffix(got.stdout, want) {
		t.Errorf("got %+v, want the explanation and at its end %s", got, want)
	}
	file := filepath.Join(t.TempDir(), "ledger.html")
	for _, want := range []result{{file + ": the last elections: 0\n", "the elections are missing: " + reason + "\n", 0}, {
		"", "error: " + file + " exists already: remove it, or name another file with --html\n", 2,
	}} {
		expect.Equal(t, e.runCommand(t, "explain", "ledger", "--html", file, "--as", user), want)
	}
	page, err := os.ReadFile(filepath.Clean(file))
	for _, want := range []string{"Coordinator\n  ledger-2 has been", "Last election\n  Not shown: " +
		strings.ReplaceAll(reason, "'", "&#39;"), "plugin  ", `"missing":"` + reason} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("got %v, %s, want a page with %s", err, page, want)
		}
	}
	file += "7"
	if got := e.runCommand(t, "explain", "ledger", "--html", file, "--term=7", "--as",
		user); got.stderr != "error: "+reason+"\n" {
		t.Errorf("got %+v, want only the error %s", got, reason)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a page without the election, want that it doesn't exist", err)
	}
	for _, flag := range []string{"--term=7", "--output=mermaid"} {
		if got := e.runCommand(t, "explain", "ledger", flag, "--as", user); got.status != 1 || got.stdout != "" ||
			got.stderr != "error: "+reason+"\n" {
			t.Errorf("%s: got %+v, want only the error %s", flag, got, reason)
		}
	}
}
