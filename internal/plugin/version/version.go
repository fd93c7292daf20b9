// Package version is the command kubectl conclave version.
package version

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// New returns the command.
func New(plugin string) *cobra.Command {
	var cluster clusteraccess.Flags
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin, the operator and the agents",
		Long: `Print the version of this plugin, the image of the operator, and the images of
the agents, with the number of pods that run them. A pod keeps its agent until
it is created again.

Without a cluster, it prints only the version of the plugin, and why.

Permissions: list deployments and pods, in all namespaces if you may.`,
		Example: `  kubectl conclave version`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Write(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), &cluster, plugin)
		},
	}
	cluster.AddTo(cmd)
	return cmd
}

// Write writes the versions, and to missing why some aren't known.
func Write(ctx context.Context, w, missing io.Writer, cluster *clusteraccess.Flags, plugin string) error {
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(rows, "plugin\t%s\n", command.BuildVersion(plugin))
	ctx, cancel := context.WithTimeout(ctx, clusteraccess.ClusterTimeout)
	defer cancel()
	if err := writeInstalled(ctx, rows, cluster); err != nil {
		fmt.Fprintf(missing, "the versions of operator and agents are unknown: %s\n", err)
	}
	return rows.Flush()
}

// writeInstalled writes the images of the operator and of the agents.
func writeInstalled(ctx context.Context, w io.Writer, cluster *clusteraccess.Flags) error {
	connected, err := cluster.Connect()
	if err != nil {
		return err
	}
	found, problem := clusteraccess.FindOperator(ctx, connected)
	if problem == nil {
		fmt.Fprintf(w, "operator\t%s in namespace %s, %d of %d replicas available\n", found.Image, found.Namespace,
			found.Available, found.Replicas)
	}
	images, err := agentImages(ctx, connected, cluster)
	for _, image := range slices.Sorted(maps.Keys(images)) {
		fmt.Fprintf(w, "agents\t%s in %s\n", image, describe.Count(images[image], "pod"))
	}
	switch {
	case problem == nil:
		return err
	case err == nil || err.Error() == problem.Error():
		return problem
	}
	return fmt.Errorf("%w; %w", problem, err)
}

// agentImages counts the pods with an agent by its image, in all namespaces or, if the
// user may not list those, in the selected one.
func agentImages(ctx context.Context, c client.Client, cluster *clusteraccess.Flags) (map[string]int, error) {
	injected := client.MatchingLabels{v1.LabelAgent: v1.AgentEnabled}
	var pods corev1.PodList
	err := c.List(ctx, &pods, injected)
	if apierrors.IsForbidden(err) {
		var namespace string
		if namespace, err = cluster.Namespace(); err == nil {
			err = c.List(ctx, &pods, injected, client.InNamespace(namespace))
		}
	}
	if err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	images := map[string]int{}
	for i := range pods.Items {
		if image := membership.AgentImage(&pods.Items[i]); image != "" {
			images[image]++
		}
	}
	return images, nil
}
