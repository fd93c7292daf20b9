// Command dashboard serves the dashboard to the users of a cluster. The API server decides
// who they are and which groups they may see.
package main

import (
	"context"
	"os"

	"github.com/conclave-dev/conclave/internal/command"
)

func main() { os.Exit(command.Execute(context.Background(), newRoot())) }
