// Package evacuate is the command kubectl conclave evacuate: coordinators leave a node or a zone, and stay away for
// some time.
package evacuate

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
)

// options are the flags of evacuate.
type options struct {
	cluster  clusteraccess.Flags
	duration time.Duration
	end      bool
	timeout  time.Duration
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "evacuate (node | zone) NAME",
		Short: "Make all coordinators leave a node or a zone for some time",
		Long: `Make the coordinators of all groups hand over that run on a node, or in a zone.
They don't return before the time is over. Members there still vote, and one is
still elected if no other member can be. Pods stay where they are: this is not a
drain. Nodes that join the zone later aren't evacuated.

The command sets the annotation conclave.dev/evacuate-until of the nodes, a time
in RFC 3339, which the operator follows, and waits until the coordinators have
left. After --timeout, it names those that stay, and the exit status is 1.

Permissions: get and patch nodes, and list them for a zone; list and watch
electiongroups in all namespaces.`,
		Example: `  kubectl conclave evacuate node worker-3 --for 30m
  kubectl conclave evacuate zone eu-west-1a
  kubectl conclave evacuate zone eu-west-1a --end`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "node" && args[0] != "zone" {
				return command.UsageErrorf("node NAME or zone NAME is required, such as: %s node worker-3", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: o.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.duration <= 0 {
				return command.UsageErrorf("--for must be above 0, got %s; to end an evacuation, use --end", o.duration)
			}
			if o.timeout <= 0 {
				return command.UsageErrorf("--timeout must be above 0, got %s", o.timeout)
			}
			ctx, stop := command.UntilInterrupted(cmd.Context())
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), args[0], args[1])
		},
	}
	o.cluster.AddTo(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.duration, "for", time.Hour, "how long coordinators stay away")
	flags.BoolVar(&o.end, "end", false, "let coordinators return now")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait until the coordinators have left")
	return cmd
}

func (o *options) run(ctx context.Context, out io.Writer, kind, name string) error {
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	nodes, err := findNodes(ctx, connected, kind, name)
	if err != nil {
		return err
	}
	leaving, err := findCoordinators(ctx, connected, nodes)
	if err != nil {
		return err
	}
	until := o.cluster.Now().Add(o.duration).UTC().Truncate(time.Second)
	for i := range nodes {
		patch := client.MergeFrom(nodes[i].DeepCopy())
		if o.end {
			delete(nodes[i].Annotations, v1.AnnotationEvacuateUntil)
		} else {
			if nodes[i].Annotations == nil {
				nodes[i].Annotations = map[string]string{}
			}
			nodes[i].Annotations[v1.AnnotationEvacuateUntil] = until.Format(time.RFC3339)
		}
		if err := connected.Patch(ctx, &nodes[i], patch); kind == "zone" && apierrors.IsNotFound(err) {
			continue // It has been removed meanwhile.
		} else if err != nil {
			return fmt.Errorf("cannot annotate node %s: %w", nodes[i].Name, command.SingleLine(err))
		}
	}
	what := kind + " " + name
	if kind == "zone" {
		what += fmt.Sprintf(" (%s)", describe.Count(len(nodes), "node"))
	}
	if o.end {
		fmt.Fprintf(out, "coordinators may return to %s\n", what)
		return nil
	}
	fmt.Fprintf(out, "coordinators leave %s until %s\n", what, until.Format(time.RFC3339))
	return o.await(ctx, out, connected, leaving)
}

// findCoordinators returns the coordinators on some nodes.
func findCoordinators(ctx context.Context, c client.Client, nodes []corev1.Node) (*leaving, error) {
	var groups v1.ElectionGroupList
	if err := c.List(ctx, &groups); err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	l := newLeaving(nodes)
	l.Replace(groups.Items)
	l.found = len(l.remaining)
	return l, nil
}

// await waits until the coordinators have left, and prints how long that took.
func (o *options) await(ctx context.Context, out io.Writer, connected client.WithWatch, leaving *leaving) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	leaving.done = cancel
	started := time.Now()
	watcher := &groupwatch.Watcher{Client: connected, RetryInterval: time.Second, Handler: leaving}
	if err := watcher.Run(limited); err != nil {
		return err
	}
	switch {
	case len(leaving.remaining) > 0 && ctx.Err() != nil:
		return fmt.Errorf("%w; the nodes remain evacuated", command.ErrInterrupted)
	case len(leaving.remaining) > 0:
		return fmt.Errorf(
			"%d of %s remained for %s: %s; perhaps no other member can be elected, or the application needs longer to stop: "+
				"for the reason, run: kubectl conclave explain GROUP", len(leaving.remaining),
			describe.Count(leaving.found, "coordinator"), o.timeout, leaving.describe())
	case leaving.found == 0:
		fmt.Fprintln(out, "no coordinator was there")
	default:
		fmt.Fprintf(out, "%s left within %.1f s\n", describe.Count(leaving.found, "coordinator"),
			time.Since(started).Seconds())
	}
	return nil
}

// findNodes returns the node of a name, or the nodes of a zone.
func findNodes(ctx context.Context, c client.Client, kind, name string) ([]corev1.Node, error) {
	if kind == "node" {
		var node corev1.Node
		switch err := c.Get(ctx, client.ObjectKey{Name: name}, &node); {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("node %s not found%s", name, command.DidYouMean(name, names(ctx, c, nodeName)))
		case err != nil:
			return nil, clusteraccess.RequestError(err)
		}
		return []corev1.Node{node}, nil
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.MatchingLabels{corev1.LabelTopologyZone: name}); err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	if len(nodes.Items) == 0 {
		return nil, fmt.Errorf("no node has the label %s=%s%s", corev1.LabelTopologyZone, name,
			command.DidYouMean(name, names(ctx, c, zoneName)))
	}
	return nodes.Items, nil
}

func nodeName(node *corev1.Node) string { return node.Name }
func zoneName(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

// names returns the names of all nodes or zones, or none if they can't be listed.
func names(ctx context.Context, c client.Client, of func(*corev1.Node) string) (all []string) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil
	}
	for i := range nodes.Items {
		all = append(all, of(&nodes.Items[i]))
	}
	return all
}

func (o *options) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []string{"node", "zone"}, cobra.ShellCompDirectiveNoFileComp
	case 1:
		connected, err := o.cluster.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if args[0] == "zone" {
			return names(cmd.Context(), connected, zoneName), cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd.Context(), connected, nodeName), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
