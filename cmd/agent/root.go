package main

import (
	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
)

// version is set by make build.
var version string

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "conclave-agent",
		Short: "Elect the coordinator among processes on one machine or many",
		Long: `Conclave elects the coordinator among a set of processes.

An agent runs beside each process and takes part in the elections of the groups
in its configuration. The application queries its agent over HTTP on a loopback
address.`,
		Example: `  # Create keys and certificates for three members of a group
  conclave-agent certificates --group ledger --member a --member b --member c --out certs

  # Check a configuration
  conclave-agent check --config agent.yaml

  # Run an agent
  conclave-agent --config agent.yaml

  # Print the status of the running agent
  conclave-agent status --config agent.yaml`,
		Args:              command.NoArguments,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	addRun(root)
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.AddCommand(newPod(), newCheck(), newExec(), newGuard(), newInstall(), newFake(), newCertificates(), newFloor(), newStatus(), command.Version(version))
	return root
}
