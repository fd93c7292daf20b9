package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/chaos"
	"github.com/conclave-dev/conclave/internal/plugin/check"
	"github.com/conclave-dev/conclave/internal/plugin/dashboard"
	"github.com/conclave-dev/conclave/internal/plugin/evacuate"
	"github.com/conclave-dev/conclave/internal/plugin/explain"
	"github.com/conclave-dev/conclave/internal/plugin/nodes"
	"github.com/conclave-dev/conclave/internal/plugin/report"
	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/plugin/status"
	"github.com/conclave-dev/conclave/internal/plugin/stepdown"
	pluginversion "github.com/conclave-dev/conclave/internal/plugin/version"
	"github.com/conclave-dev/conclave/internal/sim"
)

// version is set by make build.
var version string

func newRoot() *cobra.Command {
	noFiles := cobra.ShellCompDirectiveNoFileComp
	root := &cobra.Command{
		Use:         "kubectl-conclave",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl conclave"},
		Short:       "Show, control and simulate coordinator elections",
		Long: `Conclave elects a coordinator among pods.

This plugin shows the coordinator of a group and why it was elected, makes it
step down, and simulates elections without a cluster.

Commands that use a cluster accept all of kubectl's flags, such as --namespace,
--context and --as. The exit status is

  0    success
  1    a request failed, or a group or a simulation violated an invariant
  2    invalid input
  3    check, or status with --exit-code, found a problem
  130  the user interrupted a simulation, a chaos test or a wait`,
		Example: `  # Show the coordinator, problems, and what to do about them
  kubectl conclave status ledger

  # Explain why it was elected, and which member is next
  kubectl conclave explain ledger

  # Simulate: the highest of ten processes crashes, the lowest detects it
  kubectl conclave simulate

  # Check the invariants in a million random schedules with all faults
  kubectl conclave simulate --schedules 1000000 --faults all`,
		Version:           command.BuildVersion(version),
		Args:              command.NoArguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true, DefaultShellCompDirective: &noFiles},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.SetUsageTemplate(usageTemplate(root))
	reporter := report.New(func() []*cobra.Command {
		return []*cobra.Command{status.New(), explain.New(version), check.New(), pluginversion.New(version)}
	})
	// A new command needs its line in the tests of this package that list all commands.
	root.AddCommand(status.New(), explain.New(version), nodes.New(), dashboard.New(), stepdown.New(),
		evacuate.New(), check.New(), reporter, chaos.New(),
		simulate.New(sim.Sample), pluginversion.New(version))
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = requireHelpTopic
	return root
}

// helpColumns is the maximum width of help texts.
const helpColumns = 80

// usageTemplate is cobra's template for help texts, wrapped at helpColumns.
func usageTemplate(root *cobra.Command) string {
	return strings.NewReplacer(
		".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpColumns),
		" for more information about a command.", " for more information.",
	).Replace(root.UsageTemplate())
}

// requireHelpTopic refuses topics that aren't commands. By default, cobra shows the help of a parent command instead.
func requireHelpTopic(help *cobra.Command, args []string) error {
	topic, rest, err := help.Root().Find(args)
	if err != nil {
		return err
	}
	return command.NoArguments(topic, rest)
}
