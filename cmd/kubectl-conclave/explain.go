package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/describe"
)

func newExplain() *cobra.Command {
	var (
		cluster clusterFlags
		output  string
	)
	cmd := &cobra.Command{
		Use:   "explain GROUP",
		Short: "Explain why this coordinator was elected, and which is next",
		Long: `Explain why the coordinator of a group was elected, which member is next, how
many failures the group tolerates, and which problems it has.`,
		Example:           "  kubectl conclave explain ledger",
		Args:              requireGroup,
		ValidArgsFunction: cluster.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOptionalOutput(&output); err != nil {
				return err
			}
			group, err := cluster.group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if output != "" {
				return writeValue(cmd.OutOrStdout(), describe.ExplanationOf(group, time.Now()), output)
			}
			describe.Explain(cmd.OutOrStdout(), group, time.Now())
			return nil
		},
	}
	cluster.addTo(cmd)
	addOutput(cmd, &output, "json or yaml instead of text")
	return cmd
}
