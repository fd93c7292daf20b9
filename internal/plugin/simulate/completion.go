package simulate

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/sim"
)

// addSimulateCompletions registers shell completions for the flags of simulate.
func addSimulateCompletions(cmd *cobra.Command) {
	command.CompleteFrom(cmd, "algorithm", catalog.Names())
	command.CompleteFrom(cmd, "safety", office.ModeNames())
	command.CompleteFrom(cmd, "output", simulateOutputs)
	command.CompleteWith(cmd, "faults", completeFaults)
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
	return proposals, command.InOrder | cobra.ShellCompDirectiveNoSpace
}
