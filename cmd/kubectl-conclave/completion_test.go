package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestFlagValuesAreCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"simulate --algorithm":             "Bully StatusTable RingAllIDs RingChampion RingActiveList RingSkip",
		"simulate --safety":                "Available Majority Strict",
		"simulate -o":                      "table json transcript mermaid",
		"status -o":                        "json yaml",
		"explain -o":                       "text mermaid json yaml",
		"nodes -o":                         "json yaml",
		"watch -o":                         "json yaml",
		"simulate --faults":                "all none loss delay reorder duplicate crash appdead pause partition clocks members stepdown leases graph slow jump disk deep skew gone settings recovery late correct latency lossy throttle failing drains operator burst pods mixed rejoin grow tail redial few",
		"simulate --crashed":               "",
		"simulate --faults crash,loss,pau": "crash,loss,delay crash,loss,reorder crash,loss,duplicate crash,loss,appdead crash,loss,pause crash,loss,partition crash,loss,clocks crash,loss,members crash,loss,stepdown crash,loss,leases crash,loss,graph crash,loss,slow crash,loss,jump crash,loss,disk crash,loss,deep crash,loss,skew crash,loss,gone crash,loss,settings crash,loss,recovery crash,loss,late crash,loss,correct crash,loss,latency crash,loss,lossy crash,loss,throttle crash,loss,failing crash,loss,drains crash,loss,operator crash,loss,burst crash,loss,pods crash,loss,mixed crash,loss,rejoin crash,loss,grow crash,loss,tail crash,loss,redial crash,loss,few",
	} {
		words := append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(args)...)
		if !strings.HasSuffix(args, "pau") {
			words = append(words, "")
		}
		proposed, directive, _ := strings.Cut(runCommand(t, nil, words...).stdout, ":")
		expect.Equalf(t, strings.Join(strings.Fields(proposed), " "), want, "%s: completions", args)
		if directive == "0\n" {
			t.Errorf("%s: got file completions, too, want none", args)
		}
	}
}

// Shells complete the values of each flag in a help text: they propose the valid ones, or no files. The exceptions are names of files.
func TestEachFlagIsCompleted(t *testing.T) {
	files := []string{"kubeconfig", "file", "html"}
	commands := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		commands++
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.NoOptDefVal != "" || slices.Contains(files, f.Name) {
				return // A switch has no value.
			}
			if _, found := cmd.GetFlagCompletionFunc(f.Name); !found {
				t.Errorf("%s --%s: has no completion", cmd.CommandPath(), f.Name)
			}
		})
		for _, child := range cmd.Commands() {
			if child.Name() != "help" && child.Name() != "completion" {
				check(child)
			}
		}
	}
	check(newRoot())
	expect.AtLeastf(t, commands, 10, "commands")
}

// Contexts, namespaces and members are those of the kubeconfig and of the cluster.
func TestValuesOfClusterAreCompleted(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	complete := func(args ...string) []string {
		all := append([]string{cobra.ShellCompNoDescRequestCmd, "step-down", "--kubeconfig", e.Kubeconfig}, args...)
		return strings.Fields(runCommand(t, nil, append(all, "")...).stdout)
	}
	if got := complete("-n", e.Namespace, "ledger", "--to"); !slices.Equal(got[:3], []string{"ledger-2", "ledger-1", "ledger-0"}) {
		t.Errorf("--to: got %v", got)
	}
	if got := complete("--namespace"); !slices.Contains(got, e.Namespace) {
		t.Errorf("--namespace: got %v, want %s", got, e.Namespace)
	}
	if got := complete("--context"); len(got) < 2 {
		t.Errorf("--context: got %v, want the contexts of the kubeconfig", got)
	}
}
