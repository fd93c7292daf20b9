package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/cli/describe"
)

const asYAML = "yaml"

// statusOptions are the flags of status.
type statusOptions struct {
	cluster       clusterFlags
	allNamespaces bool
	output        string
}

func newStatus() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [GROUP]",
		Short: "Show the coordinator, the process status table, and problems",
		Long: `Show one group, or all groups of a namespace: the coordinator, the process
status table, and each problem with what to do about it.

The operator compiles this status from the agents' reports. The exit status is 0
even if a group has problems; scripts can wait for its conditions instead.`,
		Example: `  kubectl conclave status ledger
  kubectl conclave status --all-namespaces
  kubectl wait electiongroup/ledger --for=condition=Available`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return requireGroup(cmd, args)
		},
		ValidArgsFunction: o.cluster.completeGroup,
		RunE:              o.run,
	}
	o.cluster.addTo(cmd.Flags())
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the groups of all namespaces")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "print the objects as json or yaml")
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command, args []string) error {
	if o.output != "" {
		if err := checkOutput(&o.output, []string{asJSON, asYAML}); err != nil {
			return err
		}
	}
	if len(args) == 0 {
		groups, err := o.cluster.groups(cmd.Context(), o.allNamespaces)
		if err != nil {
			return err
		}
		return showGroups(cmd.OutOrStdout(), cmd.ErrOrStderr(), groups, o.output)
	}
	if o.allNamespaces {
		return command.UsageErrorf("--all-namespaces shows all groups: remove it, or remove %q", args[0])
	}
	group, err := o.cluster.group(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if o.output != "" {
		return printObject(cmd.OutOrStdout(), group, o.output)
	}
	describe.Status(cmd.OutOrStdout(), group, time.Now())
	return nil
}

// showGroups describes groups, or prints them as a List if there is an output format.
func showGroups(out, notes io.Writer, groups []v1.ElectionGroup, output string) error {
	if output != "" {
		list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
		for i := range groups {
			list.Items = append(list.Items, runtime.RawExtension{Object: &groups[i]})
		}
		return printObject(out, list, output)
	}
	if len(groups) == 0 {
		fmt.Fprintln(notes, "No groups found.")
	}
	for i := range groups {
		if i > 0 {
			fmt.Fprintln(out)
		}
		describe.Status(out, &groups[i], time.Now())
	}
	return nil
}

func printObject(out io.Writer, object runtime.Object, output string) error {
	var printer printers.ResourcePrinter = &printers.JSONPrinter{}
	if output == asYAML {
		printer = &printers.YAMLPrinter{}
	}
	return printer.PrintObj(object, out)
}
