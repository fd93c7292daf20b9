package clusteraccess

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

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// ClusterTimeout limits the wait for what a command can do without.
const ClusterTimeout = 5 * time.Second

// DefaultOperatorNamespace is the operator's namespace in config/default.
const DefaultOperatorNamespace = "conclave-system"

// Operator is what the operator's Deployment says.
type Operator struct {
	Namespace, Image, AgentImage string
	Replicas, Available          int32
}

// OperatorLabels are those of the operator's Deployment and pods. The pod by which Helm uninstalls it has the same
// name.
var OperatorLabels = client.MatchingLabels{
	"app.kubernetes.io/name": "conclave", "app.kubernetes.io/component": "manager",
}

// ListOperators finds the operators of the cluster, which should be one, by the labels of their Deployments. Users who
// may list the Deployments of the default namespace only find those there.
func ListOperators(ctx context.Context, c client.Client) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := c.List(ctx, &list, OperatorLabels)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, &list, OperatorLabels, client.InNamespace(DefaultOperatorNamespace))
	}
	return list.Items, err
}

// FindOperator finds the operator of the cluster.
func FindOperator(ctx context.Context, c client.Client) (*Operator, error) {
	deployments, err := ListOperators(ctx, c)
	switch {
	case err != nil:
		return nil, RequestError(err)
	case len(deployments) == 0:
		return nil, errors.New("no operator is installed in this cluster")
	case len(deployments) > 1:
		var namespaces []string
		for i := range deployments {
			namespaces = append(namespaces, deployments[i].Namespace)
		}
		return nil, fmt.Errorf("operators are installed in several namespaces: %s",
			strings.Join(slices.Sorted(slices.Values(namespaces)), ", "))
	}
	return OperatorOf(&deployments[0]), nil
}

// OperatorOf returns the operator of a Deployment.
func OperatorOf(d *appsv1.Deployment) *Operator {
	found := &Operator{Namespace: d.Namespace, Replicas: d.Status.Replicas, Available: d.Status.AvailableReplicas}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name != "manager" {
			continue
		}
		found.Image = container.Image
		for _, variable := range container.Env {
			if variable.Name == "AGENT_IMAGE" {
				found.AgentImage = variable.Value
			}
		}
	}
	return found
}

// LeaseReader returns a function that reads the Lease of the operator. It looks for the operator once.
func LeaseReader(c client.Client) func(context.Context) (*coordinationv1.Lease, error) {
	namespace := ""
	return func(ctx context.Context) (*coordinationv1.Lease, error) {
		if namespace == "" {
			namespace = operatorNamespace(ctx, c)
		}
		return operatorlease.Read(ctx, c, namespace)
	}
}

// operatorNamespace returns the namespace of the operator, or the default if it can't be found: the user may still be
// allowed to read the Lease there.
func operatorNamespace(ctx context.Context, c client.Client) string {
	if found, err := FindOperator(ctx, c); err == nil {
		return found.Namespace
	}
	return DefaultOperatorNamespace
}

// WarnOfSilentOperator prints a line if the operator hasn't renewed its Lease in time, so that a status may be
// outdated. It prints nothing if that is unknown, for example without the permission to read the Lease.
func (c *Flags) WarnOfSilentOperator(cmd *cobra.Command) {
	ctx, cancel := context.WithTimeout(cmd.Context(), ClusterTimeout)
	defer cancel()
	connected, err := c.Connect()
	if err != nil {
		return
	}
	namespace := operatorNamespace(ctx, connected)
	lease, err := operatorlease.Read(ctx, connected, namespace)
	if err != nil {
		return
	}
	now := c.Now()
	if since := new(operatorlease.Observer).Observe(lease, now); !since.IsZero() {
		fmt.Fprintln(cmd.ErrOrStderr(), SilenceText("The operator in namespace "+namespace, now.Sub(since)))
	}
}

// SilenceText says for how long an operator has not shown that it runs.
func SilenceText(operator string, silence time.Duration) string {
	return fmt.Sprintf("%s has not shown that it runs for %s. Elections continue without it, but this status may be "+
		"outdated. To find the cause, run: kubectl conclave check",
		operator, duration.HumanDuration(silence))
}
