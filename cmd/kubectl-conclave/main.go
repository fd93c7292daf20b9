// Command kubectl-conclave is the kubectl plugin of Conclave. kubectl runs it for
// "kubectl conclave" if it is on the PATH.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(context.Background(), newRoot())) }

// run runs a command and returns its exit status. It prints an error as one line
// to stderr.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	}
	return exitStatus(err)
}
