package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFlagValuesAreCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"simulate --algorithm":             "Bully StatusTable RingAllIDs RingChampion RingActiveList RingSkip",
		"simulate --safety":                "Available Majority Strict",
		"simulate -o":                      "table json transcript mermaid",
		"simulate compare -o":              "table json yaml svg",
		"status -o":                        "json yaml",
		"explain -o":                       "json yaml",
		"watch -o":                         "json yaml",
		"simulate --faults":                "all none loss delay reorder duplicate crash appdead pause partition clocks members stepdown leases graph slow jump disk deep skew gone adapt",
		"simulate --crashed":               "",
		"simulate compare --max":           "",
		"simulate --faults crash,loss,pau": "crash,loss,delay crash,loss,reorder crash,loss,duplicate crash,loss,appdead crash,loss,pause crash,loss,partition crash,loss,clocks crash,loss,members crash,loss,stepdown crash,loss,leases crash,loss,graph crash,loss,slow crash,loss,jump crash,loss,disk crash,loss,deep crash,loss,skew crash,loss,gone crash,loss,adapt",
	} {
		words := append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(args)...)
		if !strings.HasSuffix(args, "pau") {
			words = append(words, "")
		}
		proposed, directive, _ := strings.Cut(runCommand(t, nil, words...).stdout, ":")
		if got := strings.Join(strings.Fields(proposed), " "); got != want {
			t.Errorf("%s: got completions %q, want %q", args, got, want)
		}
		if directive == "0\n" {
			t.Errorf("%s: got file completions, too, want none", args)
		}
	}
}
