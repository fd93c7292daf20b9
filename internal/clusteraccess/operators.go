package clusteraccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// ClusterTimeout limits the wait for what a command can do without.
const ClusterTimeout = 5 * time.Second

// DefaultOperatorNamespace is the operator's namespace in config/default.
const DefaultOperatorNamespace = "conclave-system"

// Operator is what the operator's Deployment says.
type Operator struct {
	Namespace, Image, AgentImage string
	// Arguments are those of the manager.
	Arguments []string
	// Namespaces are those that the operator serves, none if it serves all.
	Namespaces          []string
	Replicas, Available int32
	// Updating means that the Deployment isn't rolled out yet: replicas of another version may inject agents.
	Updating bool
}

// OperatorLabels are those of the operator's Deployment.
var OperatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "conclave", "app.kubernetes.io/component": "manager"}

// ListOperators finds the operators by the labels of their Deployments. Users who may list
// the Deployments of the default namespace only find those there.
func ListOperators(ctx context.Context, c client.Client) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := c.List(ctx, &list, OperatorLabels)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, &list, OperatorLabels, client.InNamespace(DefaultOperatorNamespace))
	}
	return list.Items, err
}

// FindOperators finds the operators that serve a namespace or, if it is empty, all of the
// cluster. There is at least one.
func FindOperators(ctx context.Context, c client.Client, namespace string) ([]*Operator, error) {
	deployments, err := ListOperators(ctx, c)
	if err != nil {
		return nil, RequestError(err)
	}
	if len(deployments) == 0 {
		return nil, errors.New("no operator is installed in this cluster")
	}
	var found []*Operator
	for i := range deployments {
		if o := OperatorOf(&deployments[i]); namespace == "" || o.serves(namespace) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no operator serves the namespace %s", namespace)
	}
	slices.SortFunc(found, func(a, b *Operator) int { return strings.Compare(a.Namespace, b.Namespace) })
	return found, nil
}

// FindOperator finds the only operator that serves a namespace or, if it is empty, the only
// one of the cluster.
func FindOperator(ctx context.Context, c client.Client, namespace string) (*Operator, error) {
	found, err := FindOperators(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var namespaces []string
	for _, o := range found {
		namespaces = append(namespaces, o.Namespace)
	}
	return nil, fmt.Errorf("operators are installed in several namespaces: %s", strings.Join(namespaces, ", "))
}

// OperatorOf returns the operator of a Deployment.
func OperatorOf(d *appsv1.Deployment) *Operator {
	found := &Operator{Namespace: d.Namespace, Replicas: d.Status.Replicas, Available: d.Status.AvailableReplicas}
	found.Updating = d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name != "manager" {
			continue
		}
		found.Image, found.Arguments = container.Image, container.Args
		for _, variable := range container.Env {
			if variable.Name == "AGENT_IMAGE" {
				found.AgentImage = variable.Value
			}
		}
		found.parseArguments()
	}
	return found
}

// parseArguments reads the arguments of the manager. It serves all namespaces unless a flag
// names some.
func (o *Operator) parseArguments() {
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	namespaces := flags.StringSlice("watch-namespaces", nil, "")
	agentImage := flags.String("agent-image", o.AgentImage, "")
	if flags.Parse(o.Arguments) == nil { // Otherwise, the manager doesn't start.
		o.Namespaces, o.AgentImage = *namespaces, *agentImage
	}
}

// serves reports whether the operator serves a namespace.
func (o *Operator) serves(namespace string) bool {
	return len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, namespace)
}

// LeaseReader returns a function that reads the Lease of the operator that serves a namespace, or all.
// It looks for the operator once.
func LeaseReader(c client.Client, served string) func(context.Context) (*coordinationv1.Lease, error) {
	namespace := ""
	return func(ctx context.Context) (*coordinationv1.Lease, error) {
		if namespace == "" {
			namespace = DefaultOperatorNamespace
			if found, err := FindOperator(ctx, c, served); err == nil {
				namespace = found.Namespace
			}
		}
		return operatorlease.Read(ctx, c, namespace)
	}
}

// WarnOfSilentOperators prints a line for each operator of these groups that doesn't run, so
// that their status may be outdated. It prints nothing if that is unknown, for example
// without the permission to read the Lease.
func (c *Flags) WarnOfSilentOperators(cmd *cobra.Command, groups []v1.ElectionGroup) {
	ctx, cancel := context.WithTimeout(cmd.Context(), ClusterTimeout)
	defer cancel()
	connected, err := c.Connect()
	if err != nil {
		return
	}
	installed, err := FindOperators(ctx, connected, "")
	if err != nil { // The user may still be allowed to read the Lease.
		installed = []*Operator{{Namespace: DefaultOperatorNamespace}}
	}
	for _, o := range installed {
		if !slices.ContainsFunc(groups, func(g v1.ElectionGroup) bool { return o.serves(g.Namespace) }) {
			continue
		}
		lease, err := operatorlease.Read(ctx, connected, o.Namespace)
		if err != nil {
			continue
		}
		now := c.Now()
		if since := new(operatorlease.Observer).Observe(lease, now); !since.IsZero() {
			fmt.Fprintln(cmd.ErrOrStderr(), SilenceText("The operator in namespace "+o.Namespace, now.Sub(since)))
		}
	}
}

// SilenceText says for how long an operator has not shown that it runs.
func SilenceText(operator string, silence time.Duration) string {
	return fmt.Sprintf("%s has not shown that it runs for %s. Elections continue without it, but this status may be outdated. To find the cause, run: kubectl conclave check",
		operator, duration.HumanDuration(silence))
}
