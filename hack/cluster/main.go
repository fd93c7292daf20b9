// Command cluster runs a throwaway Kubernetes cluster with several nodes on one Linux machine. It needs no Docker, and
// downloads only Go modules and Debian packages. Nodes can be partitioned, killed and restarted. See docs/cluster.md.
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
		// kubectl has already printed its error.
		var exited *exec.ExitError
		if errors.As(err, &exited) && exited.Exited() && errors.Is(err, errReported) {
			os.Exit(exited.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
