// Package status is the command kubectl conclave status.
package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
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
	output        string
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

The operator compiles this status from the agents' reports. If it has not
renewed its Lease for 5 s, the output says for how long the status may be
outdated, if you may read that Lease. Ages are by the clock of the API server.

The exit status is 0 even if a group has problems. With --exit-code, it is 3
unless each group that is shown has a coordinator and no problem.

Permissions: get electiongroups, and list them if no name is given.`,
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
	output.AddFlag(cmd, &o.output, "print the objects as json or yaml")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with status 3 if a group has a problem")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := output.ChooseOptional(&o.output); err != nil {
		return err
	}
	if len(args) == 0 {
		groups, err := o.cluster.Groups(cmd.Context(), o.allNamespaces)
		if err != nil {
			return err
		}
		if len(groups) > 0 {
			o.cluster.WarnOfSilentOperator(cmd)
		}
		if err := showGroups(cmd.OutOrStdout(), groups, o.output, o.cluster.Now()); err != nil {
			return err
		}
		if len(groups) == 0 && o.output == "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "No groups found%s.\n", o.cluster.Where(o.allNamespaces))
		}
		return o.findProblems(groups)
	}
	if o.allNamespaces {
		return command.UsageErrorf("--all-namespaces shows all groups: remove it, or remove %q", args[0])
	}
	group, err := o.cluster.Group(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	o.cluster.WarnOfSilentOperator(cmd)
	if o.output == "" {
		describe.Status(cmd.OutOrStdout(), group, o.cluster.Now())
	} else if err := printObject(cmd.OutOrStdout(), group, o.output); err != nil {
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

// showGroups describes groups, or prints them as a List if there is an output format.
func showGroups(out io.Writer, groups []v1.ElectionGroup, format string, now time.Time) error {
	if format != "" {
		list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
		for i := range groups {
			list.Items = append(list.Items, runtime.RawExtension{Object: &groups[i]})
		}
		return printObject(out, list, format)
	}
	if len(groups) == 1 {
		describe.Status(out, &groups[0], now)
		return nil
	}
	describe.Statuses(out, groups, now)
	return nil
}

func printObject(out io.Writer, object runtime.Object, format string) error {
	var printer printers.ResourcePrinter = &printers.JSONPrinter{}
	if format == output.YAML {
		printer = &printers.YAMLPrinter{}
	}
	return printer.PrintObj(object, out)
}
