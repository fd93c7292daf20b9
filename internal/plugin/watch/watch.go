// Package watch is the command kubectl conclave watch: a line for each change of a group.
package watch

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
)

// New returns the command.
func New() *cobra.Command {
	var cluster clusteraccess.Flags
	cmd := &cobra.Command{
		Use:   "watch GROUP",
		Short: "Print a line for each change of a group",
		Long: `Print a line for each change of a group: its coordinator with the term and the
time without a coordinator, its members, and its problems.

The command runs until it is interrupted. It resumes a broken watch without a
loss, or prints the differences if the API server has lost the changes. A
failover may be too short for the status to show it: the event streams of the
agents are more precise.

Permissions: get, list and watch electiongroups.`,
		Example: `  kubectl conclave watch ledger
  kubectl conclave watch ledger | grep coordinator`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: cluster.CompleteGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return watchGroup(ctx, &cluster, cmd, args[0])
		},
	}
	cluster.AddTo(cmd)
	return cmd
}

func watchGroup(ctx context.Context, cluster *clusteraccess.Flags, cmd *cobra.Command, name string) error {
	group, err := cluster.Group(ctx, name) // A name that doesn't exist at the start is an error.
	if err != nil {
		return err
	}
	connected, err := cluster.Connect()
	if err != nil {
		return err
	}
	p := &printer{out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
	var observing sync.WaitGroup
	defer observing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observing.Go(func() { p.observeOperator(ctx, clusteraccess.LeaseReader(connected), cluster.Now) })
	watcher := groupwatch.Watcher{
		Client: connected, Namespace: group.Namespace, Name: name, RetryInterval: time.Second, Handler: p,
	}
	return watcher.Run(ctx)
}
