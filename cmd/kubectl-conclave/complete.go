package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/sim"
)

// completeSimulate says what shells shall propose for the flags of simulate.
func completeSimulate(cmd *cobra.Command) {
	completeFrom(cmd, "algorithm", catalog.Names())
	completeFrom(cmd, "safety", office.ModeNames())
	completeFrom(cmd, "output", simulateOutputs)
	completeWith(cmd, "faults", proposeFaults)
	for _, name := range []string{
		"processes", "ring", "crashed", "initiators", "recover", "latency", "stagger", "schedules", "duration", "seed",
	} {
		completeNothing(cmd, name)
	}
}

// inOrder has shells propose what they are given, and no files.
const inOrder = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completeFrom proposes names, in their order.
func completeFrom(cmd *cobra.Command, flag string, names []string) {
	completeWith(cmd, flag, cobra.FixedCompletions(names, inOrder))
}

// completeNothing has shells propose nothing: files would be wrong.
func completeNothing(cmd *cobra.Command, flag string) {
	completeWith(cmd, flag, cobra.NoFileCompletions)
}

func completeWith(cmd *cobra.Command, flag string, propose cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, propose); err != nil {
		panic(err) // a flag that doesn't exist
	}
}

// proposeFaults proposes one more fault than those that are written already.
func proposeFaults(_ *cobra.Command, _ []string, written string) ([]string, cobra.ShellCompDirective) {
	before := written[:strings.LastIndexByte(written, ',')+1]
	named := strings.Split(before, ",")
	names := sim.FaultNames()
	if before == "" {
		names = append([]string{allFaults, noFaults}, names...)
	}
	var proposed []string
	for _, name := range names {
		if !slices.Contains(named, name) {
			proposed = append(proposed, before+name)
		}
	}
	return proposed, inOrder | cobra.ShellCompDirectiveNoSpace
}
