// Command manager is Conclave's operator: it puts agents into pods, gives them
// their certificates and their groups, and shows what they agree on.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/command"
)

func main() {
	os.Exit(run(context.Background(), newRoot()))
}

// run runs a command and returns its exit status. What went wrong is one line on
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
