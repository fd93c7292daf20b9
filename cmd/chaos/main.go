// Command chaos, named conclave-chaos outside of its image, injects the faults that its standard input requests into the node on
// which it runs. `kubectl conclave chaos --machines pod` starts it in a privileged pod: see package nodefault.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
	"github.com/conclave-dev/conclave/internal/command"
)

// version is set by the linker.
var version = "unversioned"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(command.ExitFailure)
	}
}

func newRoot() *cobra.Command {
	return &cobra.Command{
		Use:           "conclave-chaos",
		Short:         "Inject the faults that standard input requests into this node",
		Version:       version,
		Args:          command.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return nodefault.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), nodefault.ThisNode{})
		},
	}
}
