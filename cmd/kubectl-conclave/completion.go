package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/sim"
)

// addSimulateCompletions registers shell completions for the flags of simulate.
func addSimulateCompletions(cmd *cobra.Command) {
	completeFrom(cmd, "algorithm", catalog.Names())
	completeFrom(cmd, "safety", office.ModeNames())
	completeFrom(cmd, "output", simulateOutputs)
	completeWith(cmd, "faults", completeFaults)
	for _, name := range []string{
		"processes", "ring", "crashed", "initiators", "recover", "latency", "stagger", "schedules", "duration", "seed", "convergence-every",
	} {
		completeNothing(cmd, name)
	}
}

// inOrder makes shells propose the given values in this order, and no files.
const inOrder = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completeFrom proposes the given values.
func completeFrom(cmd *cobra.Command, flag string, values []string) {
	completeWith(cmd, flag, cobra.FixedCompletions(values, inOrder))
}

// completeNothing prevents shells from proposing files.
func completeNothing(cmd *cobra.Command, flag string) {
	completeWith(cmd, flag, cobra.NoFileCompletions)
}

func completeWith(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // The flag doesn't exist.
	}
}

// completeFaults proposes each fault that isn't yet in the comma-separated list.
func completeFaults(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	prefix := typed[:strings.LastIndexByte(typed, ',')+1]
	chosen := strings.Split(prefix, ",")
	names := append(sim.FaultNames(), sim.OptionalFaultNames()...)
	if prefix == "" {
		names = append([]string{allFaults, noFaults}, names...)
	}
	var proposals []string
	for _, name := range names {
		if !slices.Contains(chosen, name) {
			proposals = append(proposals, prefix+name)
		}
	}
	return proposals, inOrder | cobra.ShellCompDirectiveNoSpace
}
