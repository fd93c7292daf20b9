// Command cluster is a throwaway Kubernetes of several nodes on one Linux machine, without Docker and without a
// download beyond Go modules and Debian packages. Its nodes can be partitioned, killed and started again. docs/cluster.md
// tells how to use it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		// A program that was run on the user's behalf has said itself what is wrong.
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.Exited() && errors.Is(err, errSaid) {
			os.Exit(ended.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
