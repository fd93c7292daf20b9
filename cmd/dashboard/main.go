// Command dashboard serves the dashboard to the users of a cluster. The API server decides
// who they are and which groups they may see.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/conclave-dev/conclave/internal/command"
)

func main() {
	root := newRoot()
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return
	}
	fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	if use := (*command.UsageError)(nil); errors.As(err, &use) {
		os.Exit(command.ExitUsage)
	}
	os.Exit(command.ExitFailure)
}
