// Package documents finds the commands in the documents, for tests that compare them with the programs.
package documents

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Command is a command in a document.
type Command struct {
	Document string
	Words    []string // without sudo, variables of the environment, and quotes
	Complete bool     // It is a line that readers copy. Commands in a sentence may lack arguments.
}

func (c Command) String() string { return c.Document + ": " + strings.Join(c.Words, " ") }

// patterns match the documents that are kept up to date, for callers two folders below the repository. They are as
// narrow as possible: Go repeats the tests of a package when a file changes in a folder that they read.
var patterns = []string{
	"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/algorithms/*.md", "docs/recipes/*.md",
	"docs/runbooks/*.md",
	"charts/*/README.md", "examples/README.md", "examples/*/README.md",
}

// Commands returns the commands in all documents.
func Commands(t testing.TB) (all []Command) {
	t.Helper()
	for _, pattern := range patterns {
		paths, err := filepath.Glob("../../" + pattern)
		must.Succeed(t, err)
		for _, path := range paths {
			text := must.ReadFile(t, filepath.Clean(path))
			for _, command := range Parse(string(text)) {
				command.Document = strings.TrimPrefix(path, "../../")
				all = append(all, command)
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("the documents have no commands")
	}
	return all
}

var (
	continued = regexp.MustCompile(`\\\n *`)
	span      = regexp.MustCompile("`([^`]+)`")
)

// Parse returns the commands of a document: those in its blocks of code, unless they have another language, and its
// inline code. Output in blocks counts, too: tests look for the programs that they know.
func Parse(text string) (all []Command) {
	fenced, shell, block, blank := false, false, false, true
	for line := range strings.Lines(continued.ReplaceAllString(text, " ")) {
		trimmed := strings.TrimSpace(line)
		if language, ok := strings.CutPrefix(trimmed, "```"); ok {
			fenced = !fenced
			shell = slices.Contains([]string{"", "sh", "bash", "shell", "console"}, language)
			continue
		}
		// An indented line in a paragraph is no code.
		block = fenced || strings.HasPrefix(line, "    ") && (blank || block) || block && trimmed == ""
		blank = trimmed == ""
		switch {
		case fenced && !shell:
		case block:
			all = append(all, split(trimmed, true)...)
		default:
			for _, code := range span.FindAllStringSubmatch(line, -1) {
				all = append(all, split(code[1], false)...)
			}
		}
	}
	return all
}

var (
	token        = regexp.MustCompile(`(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\|&;()])+|[|&;()]+`)
	substitution = regexp.MustCompile(`"?\$\(|\)"`)
	assignment   = regexp.MustCompile(`^\w+=`)
	unquote      = strings.NewReplacer(`'`, "", `"`, "", `\`, "")
)

// split splits a line of shell into its commands.
func split(line string, complete bool) (all []Command) {
	var words []string
	end := func() {
		if len(words) > 0 {
			all = append(all, Command{Words: words, Complete: complete})
			if i := slices.Index(words, "--"); i > 0 && i < len(words)-1 {
				all = append(all, Command{Words: words[i+1:], Complete: complete})
			}
		}
		words = nil
	}
	for _, word := range token.FindAllString(substitution.ReplaceAllString(line, " ; "), -1) {
		switch {
		case strings.HasPrefix(word, "#"):
			end()
			return all
		case strings.ContainsAny(word[:1], "|&;()>"):
			end()
		case len(words) == 0 && (assignment.MatchString(word) || slices.Contains([]string{"$", "sudo", "do", "eval"}, word)):
		default:
			words = append(words, unquote.Replace(word))
		}
	}
	end()
	return all
}

// CheckProgram checks that the documents have only commands, flags and arguments that a program accepts, and that the
// pages about it name only its flags. The names of the program are that of its root command and further ones.
func CheckProgram(t *testing.T, newCommand func() *cobra.Command, pages []string, names ...string) {
	t.Helper()
	names = append(names, newCommand().CommandPath())
	for _, c := range Commands(t) {
		line := filepath.Base(c.Words[0]) + " " + strings.Join(c.Words[1:], " ")
		for _, name := range names {
			if !strings.HasPrefix(line, name+" ") {
				continue
			}
			expect.Succeedf(t, Check(newCommand(), c.Words[len(strings.Fields(name)):], c.Complete), "%s", c)
		}
		for _, word := range c.Words {
			flag, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			if strings.HasPrefix(c.Words[0], "--") && flag != word && slices.Contains(pages, c.Document) &&
				!hasFlag(newCommand(), flag) {
				t.Errorf("%s: %s has no flag --%s", c, names, flag)
			}
		}
	}
}

// Check returns why a program would refuse its arguments. Those of an incomplete command may lack some.
func Check(root *cobra.Command, arguments []string, complete bool) error {
	command, rest, err := root.Find(arguments)
	if err != nil {
		return err
	}
	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if complete || command.HasSubCommands() {
		return command.ValidateArgs(command.Flags().Args())
	}
	return nil
}

// hasFlag reports whether a command or one of its subcommands has a flag.
func hasFlag(command *cobra.Command, name string) bool {
	return command.Flags().Lookup(name) != nil || command.PersistentFlags().Lookup(name) != nil ||
		slices.ContainsFunc(command.Commands(), func(sub *cobra.Command) bool { return hasFlag(sub, name) })
}
