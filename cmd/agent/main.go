// Command agent, conclave-agent in its image, elects coordinators for the
// application beside it, with or without Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/cli/command"
)

func main() {
	reduceWakeups()
	os.Exit(run(context.Background(), newRoot()))
}

// run runs a command and returns its exit status. What went wrong is one line on
// stderr, or one for each complaint about the configuration.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var complaints config.Errors
	switch {
	case errors.As(err, &complaints):
		// FILE:LINE: at the start of a line is what editors understand.
		fmt.Fprintln(root.ErrOrStderr(), complaints)
	case err != nil:
		fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	var (
		use        *command.UsageError
		complaints config.Errors
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &use), errors.As(err, &complaints):
		return command.ExitUsage
	}
	return command.ExitFailure
}
