// Command kubectl-conclave is the kubectl plugin of Conclave. On the PATH, it
// answers to "kubectl conclave".
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(context.Background(), newRoot())) }

// run runs a command and returns its exit status. What went wrong is one line
// on stderr.
func run(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	}
	return exitStatus(err)
}
