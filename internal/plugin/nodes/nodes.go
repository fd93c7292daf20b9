// Package nodes is the command kubectl conclave nodes.
package nodes

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

// options are the flags of nodes.
type options struct {
	cluster       clusteraccess.Flags
	allNamespaces bool
	output        string
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show where coordinators are, and which groups a node would stop",
		Long: `Show the nodes on which members of groups are, those with the most coordinators
first. STOPS has the groups that would be without a coordinator if the node
failed or was drained now. Groups that have stopped already aren't listed.

Use -A: without it, only the groups of one namespace count. -o json and -o yaml
print the names of all groups, as stops and coordinators.

Permissions: list electiongroups.`,
		Example: `  kubectl conclave nodes -A
  kubectl conclave nodes -A -o json`,
		Args: command.NoArguments,
		RunE: o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "count the groups of all namespaces")
	output.AddFlag(cmd, &o.output, "print the nodes as json or yaml")
	return cmd
}

func (o *options) run(cmd *cobra.Command, _ []string) error {
	if err := output.ChooseOptional(&o.output); err != nil {
		return err
	}
	groups, err := o.cluster.Groups(cmd.Context(), o.allNamespaces)
	if err != nil {
		return err
	}
	o.cluster.WarnOfSilentOperator(cmd)
	rows := describe.NodeTable(groups)
	if o.output != "" {
		return output.Write(cmd.OutOrStdout(), rows, o.output)
	}
	if len(rows) == 0 {
		why := ", according to their statuses"
		if len(groups) == 0 {
			why = ": there are no groups" + o.cluster.Where(o.allNamespaces)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "No member of a group is on a node"+why+".")
		return nil
	}
	return write(cmd.OutOrStdout(), rows)
}

// write writes the table. The groups are the last column because they may be long.
func write(w io.Writer, rows []describe.NodeRow) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "NODE\tZONE\tCOORDINATORS\tMEMBERS\tSTOPS")
	for i := range rows {
		row := &rows[i]
		fmt.Fprintf(columns, "%s\t%s\t%d\t%d\t%s\n", row.Node, cmp.Or(row.Zone, "-"), len(row.Coordinators), row.Members,
			cmp.Or(describe.JoinNames(row.Stops, "and"), "-"))
	}
	return columns.Flush()
}
