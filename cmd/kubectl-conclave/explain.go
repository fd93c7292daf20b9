package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/describe"
)

func newExplain() *cobra.Command {
	var chosen cluster
	cmd := &cobra.Command{
		Use:   "explain GROUP",
		Short: "Tell why that one leads, who is next, and what hinders",
		Long: `Tell in sentences why the coordinator of a group is who it is, who would be
next, what the group can lose, and what hinders it.`,
		Example:           "  kubectl conclave explain ledger",
		Args:              oneGroup,
		ValidArgsFunction: chosen.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			groups, err := chosen.groups(cmd.Context(), args, false)
			if err != nil {
				return err
			}
			describe.Explain(cmd.OutOrStdout(), &groups[0], time.Now())
			return nil
		},
	}
	chosen.register(cmd.Flags())
	return cmd
}
