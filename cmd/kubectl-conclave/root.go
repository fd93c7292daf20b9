package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/sim"
)

// version is stamped by make build.
var version string

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-conclave",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl conclave"},
		Short:       "Elect coordinators among pods, and see how that is done",
		Long: `Conclave elects the coordinator among a set of pods.

This plugin shows who leads and why, and has a coordinator step down. It shows
also, without a cluster, what an election does: who becomes coordinator, with
how many messages, and whether anything that may go wrong can make two.`,
		Example: `  # Who leads, what isn't well, and what to do about it
  kubectl conclave status ledger

  # Why it is that one, and who is next
  kubectl conclave explain ledger

  # The highest of ten processes is down, and the lowest finds out
  kubectl conclave simulate

  # A million schedules in which anything may go wrong
  kubectl conclave simulate --schedules 1000000 --faults all

  # What the six algorithms cost
  kubectl conclave simulate compare --max 100 -o svg > costs.svg`,
		Args:              command.NoArguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.SetUsageTemplate(usageOf(root))
	root.AddCommand(newStatus(), newWatch(), newExplain(), newStepDown(), newInject(), newSimulate(sim.Sample), command.Version(version))
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = knownTopic
	return root
}

// columns is how wide a help text may be.
const columns = 80

// usageOf is cobra's template for help texts, made to fit a terminal.
func usageOf(root *cobra.Command) string {
	return strings.NewReplacer(
		".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", columns),
		" for more information about a command.", " for more.",
	).Replace(root.UsageTemplate())
}

// knownTopic refuses what isn't a command; cobra shows the help of another one.
func knownTopic(help *cobra.Command, args []string) error {
	topic, rest, err := help.Root().Find(args)
	if err != nil {
		return err
	}
	return command.NoArguments(topic, rest)
}
