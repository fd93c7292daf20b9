// Command kubectl-conclave is the kubectl plugin of Conclave. kubectl runs it for
// "kubectl conclave" if it is on the PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/plugin/output"
)

func main() { os.Exit(run(context.Background(), newRoot())) }

// run runs a command and returns its exit status. It prints an error as one line
// to stderr. A command whose output can't be written ends, and has failed.
func run(ctx context.Context, root *cobra.Command) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root.SetOut(&output.Printer{To: root.OutOrStdout(), Fail: cancel})
	root.SetErr(&output.Printer{To: root.ErrOrStderr(), Fail: func(error) {}})
	err := root.ExecuteContext(ctx)
	if unwritten := (*output.Error)(nil); errors.As(context.Cause(ctx), &unwritten) {
		err = unwritten
	}
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	}
	return exitStatus(err)
}
