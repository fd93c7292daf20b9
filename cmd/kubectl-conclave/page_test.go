package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const (
	page          = "../../docs/kubectl.md"
	generatedFrom = "<!-- Below, from the help texts: go test ./cmd/kubectl-conclave -run TestPageHasTheHelpTexts -update -->\n"
	pageColumns   = 120
)

func TestPageHasTheHelpTexts(t *testing.T) {
	written, _, _ := strings.Cut(string(must.ReadFile(t, page)), generatedFrom)
	root := newRoot()
	text := written + generatedFrom + "\n" + paragraphs(root.Long)
	for _, command := range root.Commands() {
		if command.IsAvailableCommand() {
			text += section(command)
		}
	}
	golden.Compare(t, page, strings.TrimSpace(text)+"\n")
	if words := len(strings.Fields(text)); words > 3000 {
		t.Errorf("%s has %d words, want at most 3,000: shorten the help texts", page, words)
	}
}

// section is the part of the page about a command.
func section(command *cobra.Command) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if newRoot().Flags().Lookup(f.Name) == nil { // The page has flags of all commands once.
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
