// Command manager is Conclave's operator. It injects agents into pods, issues their
// certificates, publishes the members of their groups, and reports the state of each
// group in its status.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
)

func main() {
	limitMemory()
	os.Exit(run(context.Background(), newRoot()))
}

// run runs a command and returns its exit status. It prints an error in one line on
// stderr.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return command.ExitOK
	}
	fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	if use := (*command.UsageError)(nil); errors.As(err, &use) {
		return command.ExitUsage
	}
	return command.ExitFailure
}
