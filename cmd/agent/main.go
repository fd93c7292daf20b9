// Command agent, named conclave-agent in its image, elects a coordinator among
// processes for the application that it runs beside, with or without Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/command"
)

func main() {
	stderr := os.Stderr
	if !runsProgram(os.Args[1:]) {
		reduceWakeups()
		reduceMemory()
		stderr = reopenPipe()
	}
	log := writeLog(stderr)
	root := newRoot()
	root.SetErr(log)
	status := run(context.Background(), root)
	log.Close(flushTimeout)
	os.Exit(status)
}

// run runs a command and returns its exit status. It prints an error as one line on
// stderr, and errors in the configuration as one line each.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var invalid config.Errors
	switch {
	case errors.As(err, &invalid):
		fmt.Fprintln(root.ErrOrStderr(), invalid)
	case errors.As(err, new(programStatus)):
	case err != nil:
		fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	var (
		use     *command.UsageError
		invalid config.Errors
		program programStatus
		failed  *execError
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &program):
		return int(program)
	case errors.As(err, &failed):
		return failed.status
	case errors.As(err, &use), errors.As(err, &invalid):
		return command.ExitUsage
	}
	return command.ExitFailure
}

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
	root.AddCommand(newPod(), newCheck(), newExec(), newGuard(), newInstall(), newFake(), newCertificates(), newStatus(),
		command.Version(version))
	return root
}
