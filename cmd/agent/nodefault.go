package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
	"github.com/conclave-dev/conclave/internal/command"
)

// newNodeFault is hidden, because only kubectl conclave chaos runs it. It is a command of the agent, because each node with a member
// already has the agent's image.
func newNodeFault() *cobra.Command {
	return &cobra.Command{
		Use:    "node-fault",
		Short:  "Inject the faults that standard input requests into this node",
		Hidden: true,
		Args:   command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return nodefault.Serve(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), nodefault.ThisNode{})
		},
	}
}
