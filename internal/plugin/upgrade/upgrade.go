// Package upgrade is the command kubectl conclave upgrade. It replaces pods in the order of package plan.
package upgrade

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
)

// options are the flags of upgrade.
type options struct {
	cluster            clusteraccess.Flags
	all, allNamespaces bool
	agentImage         string
	dryRun             bool
	timeout            time.Duration
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "upgrade (GROUP | --all)",
		Short: "Give running pods the agent of the operator, coordinators last",
		Long: `Replace the pods of a group, or of all groups, whose agent isn't the one that
the installed operator injects. Upgrade the operator first.

It evicts one pod at a time, so disruption budgets are respected. Before each
eviction, the groups of the pod must be available, and all of their other
members up. Coordinators come last, and hand over before that. If a pod doesn't
come back, the command stops and says why. Run it again to continue.

Permissions: list electiongroups and pods; create pods/eviction and, for
coordinators, pods/portforward.`,
		Example: `  kubectl conclave upgrade ledger --dry-run
  kubectl conclave upgrade ledger
  kubectl conclave upgrade --all -A`,
		Args:              clusteraccess.OptionalGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			forward, err := o.check(args)
			if err != nil {
				return err
			}
			ctx, stop := command.UntilInterrupted(cmd.Context())
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), strings.Join(args, ""), forward)
		},
	}
	o.cluster.AddTo(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "replace the pods of all groups of the namespace")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with --all: of all namespaces")
	flags.StringVar(&o.agentImage, "agent-image", "", "the image of the agent that new pods get (default: that of the installed operator)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print which pods would be replaced, in their order, and change nothing")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for each pod, and for its groups")
	command.CompleteNothing(cmd, "agent-image")
	command.CompleteNothing(cmd, "timeout")
	return cmd
}

func (o *options) check(args []string) (clusteraccess.PortForwarder, error) {
	switch {
	case o.all == (len(args) == 1):
		return nil, command.UsageErrorf("either the name of a group or --all is required, such as: kubectl conclave upgrade ledger")
	case o.allNamespaces && !o.all:
		return nil, command.UsageErrorf("--all-namespaces requires --all")
	case o.timeout <= 0:
		return nil, command.UsageErrorf("--timeout must be above 0, got %s", o.timeout)
	}
	return o.cluster.Forwarder()
}

// run upgrades one group, or all groups of some namespaces.
func (o *options) run(ctx context.Context, out io.Writer, group string, forward clusteraccess.PortForwarder) error {
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	var groups []v1.ElectionGroup
	if group != "" {
		found, err := o.cluster.Group(ctx, group)
		if err != nil {
			return err
		}
		groups = append(groups, *found)
	} else if groups, err = o.cluster.Groups(ctx, o.allNamespaces); err != nil {
		return err
	}
	image := o.agentImage
	if image == "" {
		if image, err = installedAgent(ctx, connected); err != nil {
			return err
		}
	}
	replaced := 0
	var unowned []string
	for _, namespace := range namespacesOf(groups) {
		u := &upgrader{client: connected, out: out, namespace: namespace, group: group, image: image, options: o, forward: forward}
		err := u.run(ctx)
		replaced += u.replaced
		unowned = append(unowned, u.unowned...)
		if err != nil {
			return err
		}
	}
	if replaced == 0 && len(unowned) == 0 {
		fmt.Fprintf(out, "all agents are %s\n", image)
	}
	if len(unowned) > 0 {
		return fmt.Errorf("pods without a controller were not replaced: delete and recreate %s", describe.JoinNames(unowned, "and"))
	}
	return nil
}

// namespacesOf returns the namespaces of groups, which are sorted by namespace.
func namespacesOf(groups []v1.ElectionGroup) (namespaces []string) {
	for i := range groups {
		namespaces = append(namespaces, groups[i].Namespace)
	}
	return slices.Compact(namespaces)
}
