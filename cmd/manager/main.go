// Command manager is Conclave's operator. It injects agents into pods, issues their certificates, publishes the members
// of their groups, and reports the state of each group in its status.
package main

import (
	"context"
	"os"

	"github.com/conclave-dev/conclave/internal/command"
)

func main() {
	limitMemory()
	os.Exit(command.Execute(context.Background(), newRoot()))
}
