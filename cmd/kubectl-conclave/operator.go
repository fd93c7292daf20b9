package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/cli/operatorlease"
)

// defaultOperatorNamespace is the operator's namespace in config/default.
const defaultOperatorNamespace = "conclave-system"

// installedOperator is what the operator's Deployment says.
type installedOperator struct {
	namespace, image, agentImage string
	// arguments are those of the manager.
	arguments           []string
	replicas, available int32
	// updating means that the Deployment isn't rolled out yet: replicas of another version may inject agents.
	updating bool
}

// operatorLabels are those of the operator's Deployment.
var operatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "conclave", "app.kubernetes.io/component": "manager"}

// listOperators finds the operators by the labels of their Deployments. Users who may list
// the Deployments of the default namespace only find those there.
func listOperators(ctx context.Context, c client.Client) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := c.List(ctx, &list, operatorLabels)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, &list, operatorLabels, client.InNamespace(defaultOperatorNamespace))
	}
	return list.Items, err
}

// findOperator finds the only operator.
func findOperator(ctx context.Context, c client.Client) (*installedOperator, error) {
	deployments, err := listOperators(ctx, c)
	if err != nil {
		return nil, requestError(err)
	}
	switch len(deployments) {
	case 0:
		return nil, errors.New("no operator is installed in this cluster")
	case 1:
		return operatorOf(&deployments[0]), nil
	}
	var namespaces []string
	for i := range deployments {
		namespaces = append(namespaces, deployments[i].Namespace)
	}
	slices.Sort(namespaces)
	return nil, fmt.Errorf("operators are installed in several namespaces: %s", strings.Join(namespaces, ", "))
}

func operatorOf(d *appsv1.Deployment) *installedOperator {
	found := &installedOperator{namespace: d.Namespace, replicas: d.Status.Replicas, available: d.Status.AvailableReplicas}
	found.updating = d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name != "manager" {
			continue
		}
		found.image, found.arguments = container.Image, container.Args
		for _, variable := range container.Env {
			if variable.Name == "AGENT_IMAGE" {
				found.agentImage = variable.Value
			}
		}
	}
	return found
}

// leaseReader returns a function that reads the Lease of the operator. It looks for the operator once.
func leaseReader(c client.Client) func(context.Context) (*coordinationv1.Lease, error) {
	namespace := ""
	return func(ctx context.Context) (*coordinationv1.Lease, error) {
		if namespace == "" {
			namespace = defaultOperatorNamespace
			if found, err := findOperator(ctx, c); err == nil {
				namespace = found.namespace
			}
		}
		return operatorlease.Read(ctx, c, namespace)
	}
}

// warnOfSilentOperator prints a line if the operator doesn't run, so that the status may be
// outdated. It prints nothing if that is unknown, for example without the permission to read
// the Lease.
func (c *clusterFlags) warnOfSilentOperator(cmd *cobra.Command) {
	ctx, cancel := context.WithTimeout(cmd.Context(), clusterTimeout)
	defer cancel()
	connected, err := c.connect()
	if err != nil {
		return
	}
	lease, err := leaseReader(connected)(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	if since := new(operatorlease.Observer).Observe(lease, now); !since.IsZero() {
		fmt.Fprintf(cmd.ErrOrStderr(), "The operator has not shown that it runs for %s. Elections continue without it, but this status may be outdated. To find the cause, run: kubectl conclave check\n",
			duration.HumanDuration(now.Sub(since)))
	}
}

// identityURL is the URL of the identity service of the operator in a namespace.
func identityURL(namespace string) string { return "https://conclave-identity." + namespace + ".svc" }
