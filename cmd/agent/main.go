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
