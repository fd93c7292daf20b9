// Package status is the command kubectl conclave status.
package status

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
)

// ProblemError reports that groups have problems, which the output describes.
type ProblemError struct{ groups []string }

func (e *ProblemError) Error() string {
	return "these groups have problems: " + strings.Join(e.groups, ", ")
}

// options are the flags of status.
type options struct {
	cluster       clusteraccess.Flags
	allNamespaces bool
	exitCode      bool
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "status [GROUP]",
		Short: "Show the coordinator, the process status table, and problems",
		Long: `Show one group, or all groups of a namespace: the coordinator, the process
status table, each problem with what to do about it, and the last ten tenures
with why each ended and the gap after it. Of several groups, those with a
problem or a warning come first, and the others have a line each.

If agents carry the connections of a group's clients, and only this group is
shown, each agent is asked about them. Those that waited in vain, were reset in
an election or refused, and failed dials count since the agent has started.

The operator compiles the rest from the agents' reports. If it has not
renewed its Lease for 5 s, the output says for how long the status may be
outdated, if you may read that Lease. Ages are by the clock of the API server.

The exit status is 0 even if a group has problems. With --exit-code, it is 3
unless each group that is shown has a coordinator and no problem.

Permissions: get electiongroups, and list them if no name is given; for
connections, create pods/portforward.`,
		Example: `  kubectl conclave status ledger
  kubectl conclave status --all-namespaces
  kubectl conclave status --exit-code >/dev/null || echo "a group has a problem"
  kubectl wait electiongroup/ledger --for=condition=Available`,
		Args:              clusteraccess.OptionalGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE:              o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the groups of all namespaces")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with status 3 if a group has a problem")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		groups, err := o.cluster.Groups(cmd.Context(), o.allNamespaces)
		if err != nil {
			return err
		}
		switch len(groups) {
		case 0:
			fmt.Fprintf(cmd.ErrOrStderr(), "No groups found%s.\n", o.cluster.Where(o.allNamespaces))
			return nil
		case 1:
			return o.show(cmd, &groups[0])
		}
		o.cluster.WarnOfSilentOperator(cmd)
		describe.Statuses(cmd.OutOrStdout(), groups, o.cluster.Now())
		return o.findProblems(groups)
	}
	if o.allNamespaces {
		return command.UsageErrorf("--all-namespaces shows all groups: remove it, or remove %q", args[0])
	}
	group, err := o.cluster.Group(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	return o.show(cmd, group)
}

func (o *options) show(cmd *cobra.Command, group *v1.ElectionGroup) error {
	o.cluster.WarnOfSilentOperator(cmd)
	describe.Status(cmd.OutOrStdout(), group, o.cluster.Now())
	if err := o.writeConnections(cmd.Context(), cmd.OutOrStdout(), group); err != nil {
		return err
	}
	return o.findProblems([]v1.ElectionGroup{*group})
}

// findProblems returns an error if a group has a problem, with --exit-code.
func (o *options) findProblems(groups []v1.ElectionGroup) error {
	if !o.exitCode {
		return nil
	}
	var names []string
	for i := range groups {
		g := &groups[i]
		if len(describe.Problems(g)) > 0 || g.Status.Coordinator == nil {
			names = append(names, g.Namespace+"/"+g.Name)
		}
	}
	if len(names) > 0 {
		return &ProblemError{names}
	}
	return nil
}
