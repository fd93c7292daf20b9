package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
)

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot,
		[]string{"docs/kubectl.md", "docs/chaos.md", "docs/simulation.md"}, "kubectl-conclave")
}

func TestShortcutsOfK9sAreAccepted(t *testing.T) {
	content := must.ReadFile(t, "../../clients/k9s/plugins.yaml")
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
			Confirm, Dangerous             bool
		}
	}
	must.Succeed(t, yaml.UnmarshalStrict(content, &file))
	keys, commands := map[string]bool{}, map[string]bool{}
	for name, p := range file.Plugins {
		line := p.Command + " " + strings.Join(p.Args, " ")
		if p.Command == "sh" {
			line = strings.Replace(p.Args[1], " 2>&1 | less -K", "", 1)
		}
		words := documents.Parse("    " + line)[0].Words
		if words[0] != "kubectl" || words[1] != "conclave" {
			t.Fatalf("%s: got command %q, want kubectl conclave", name, line)
		}
		if err := documents.Check(newRoot(), words[2:], true); err != nil {
			t.Errorf("%s: %s: %s", name, line, err)
		}
		if p.Description == "" || !slices.Equal(p.Scopes, []string{"electiongroups"}) || keys[p.ShortCut] {
			t.Errorf("%s: got %+v, want a description, the scope electiongroups, and a shortcut that no other plugin has",
				name, p)
		}
		if changes := words[2] == "step-down"; p.Confirm != changes || p.Dangerous != changes {
			t.Errorf("%s: confirm and dangerous must be %t", name, changes)
		}
		keys[p.ShortCut], commands[words[2]] = true, true
	}
	for _, command := range []string{"explain", "status", "check", "step-down"} {
		if !commands[command] {
			t.Errorf("there is no shortcut for %s", command)
		}
	}
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

// generatedDiagram matches a diagram in docs/algorithms and the command that generates it.
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
			expect.Containsf(t, d[1], "--algorithm "+name+" ", "page of %s: diagram of another algorithm", name)
			if got := runCommand(t, nil, strings.Fields(d[1])...); got.status != 0 || got.stdout != d[2] {
				t.Errorf("%s: exit status %d, %s\ngot\n%swant, as on the page of %s,\n%s", d[1], got.status,
					got.stderr, got.stdout, name, d[2])
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
			expect.Containsf(t, pages[name], "\n"+section+"\n", "page of %s", name)
		}
	}
}

// algorithmPages returns the pages of docs/algorithms by their titles.
func algorithmPages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/algorithms/*.md")
	must.Succeed(t, err)
	pages := map[string]string{}
	for _, file := range files {
		page := must.ReadFile(t, filepath.Clean(file))
		title, _, _ := strings.Cut(string(page), "\n")
		pages[strings.TrimPrefix(title, "# ")] = string(page)
	}
	return pages
}

func TestFlagValuesAreCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"simulate --algorithm": "Bully StatusTable RingAllIDs RingChampion RingActiveList RingSkip",
		"simulate --safety":    "Available Majority Strict",
		"simulate -o":          "table transcript mermaid",
		"explain -o":           "text mermaid",
		"nodes -o":             "json yaml",
		"simulate --faults": "all soak none loss delay reorder duplicate crash appdead pause partition clocks members " +
			"stepdown leases graph slow pods disk deep disk-lost operator gone settings recovery late latency lossy " +
			"throttle failing drains burst mixed rejoin grow tail redial few",
		"simulate --crashed": "",
	} {
		words := append(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(args)...), "")
		proposed, directive, _ := strings.Cut(runCommand(t, nil, words...).stdout, ":")
		expect.Equalf(t, strings.Join(strings.Fields(proposed), " "), want, "%s: completions", args)
		if directive == "0\n" {
			t.Errorf("%s: got file completions, too, want none", args)
		}
	}
}

// Shells propose files only for flags that name one.
func TestEachFlagIsCompleted(t *testing.T) {
	files := []string{"kubeconfig", "file", "html"}
	commands := 0
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		commands++
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.NoOptDefVal != "" {
				return // A switch has no value.
			}
			words := []string{cobra.ShellCompNoDescRequestCmd, cmd.Name(), "--" + f.Name, ""}
			_, directive, _ := strings.Cut(runCommand(t, nil, words...).stdout, ":")
			expect.Equalf(t, directive == "0\n", slices.Contains(files, f.Name), "%s --%s: proposes files", cmd.Name(), f.Name)
		})
	}
	expect.AtLeastf(t, commands, 10, "commands")
}

// Contexts, namespaces, groups, members and terms are those of the kubeconfig and of the cluster.
func TestValuesOfClusterAreCompleted(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	g.Status.History = []v1.Tenure{{Number: 1, Pod: "ledger-2", Term: 100, From: metav1.NewMicroTime(
		pluginenv.LongAgo.Time)}}
	must.Succeed(t, e.Status().Update(t.Context(), g))
	for args, want := range map[string]string{
		"step-down -n NAMESPACE ledger --to": "ledger-2\nledger-1\nledger-0\n",
		"explain -n NAMESPACE":               "ledger\n",
		"explain -n NAMESPACE ledger --term": "100\tledger-2\n",
		"step-down --namespace":              e.Namespace + "\n",
		"step-down --context":                "envtest\n",
	} {
		words := strings.Fields(strings.ReplaceAll(args, "NAMESPACE", e.Namespace))
		words = append([]string{cobra.ShellCompRequestCmd, words[0], "--kubeconfig", e.Kubeconfig}, append(words[1:], "")...)
		expect.Containsf(t, runCommand(t, nil, words...).stdout, want, "%s: completions", args)
	}
}
