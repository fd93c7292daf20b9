package main

import (
	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/command"
)

// version is stamped by make build.
var version string

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "conclave-agent",
		Short: "Elect the coordinator among processes on one machine or many",
		Long: `Conclave elects the coordinator among a set of processes.

This agent runs beside each of them, and takes part in the elections of the
groups in its configuration. The application asks it over HTTP on a loopback
address who leads.`,
		Example: `  # Keys and certificates for three members of a group
  conclave-agent certificates --group ledger --member a --member b --member c --out certs

  # Is the configuration in order?
  conclave-agent check --config agent.yaml

  conclave-agent --config agent.yaml

  # What does the one that runs with it know?
  conclave-agent status --config agent.yaml`,
		Args:              command.NoArguments,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	addRun(root)
	root.SetFlagErrorFunc(command.ExplainFlag)
	root.AddCommand(newPod(), newCheck(), newCertificates(), newStatus(), command.Version(version))
	return root
}
