package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
)

// defaultOperatorNamespace is the operator's namespace in config/default.
const defaultOperatorNamespace = "conclave-system"

// installedOperator is what the operator's Deployment says.
type installedOperator struct {
	namespace, image, agentImage string
	// arguments are those of the manager.
	arguments           []string
	serves              rules.Served
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

// findOperators finds the operators that serve a namespace or, if it is empty, all of the
// cluster. There is at least one.
func findOperators(ctx context.Context, c client.Client, namespace string) ([]*installedOperator, error) {
	deployments, err := listOperators(ctx, c)
	if err != nil {
		return nil, requestError(err)
	}
	if len(deployments) == 0 {
		return nil, errors.New("no operator is installed in this cluster")
	}
	var found []*installedOperator
	for i := range deployments {
		if o := operatorOf(&deployments[i]); namespace == "" || o.serves.Has(namespace) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no operator serves the namespace %s", namespace)
	}
	slices.SortFunc(found, func(a, b *installedOperator) int { return strings.Compare(a.namespace, b.namespace) })
	return found, nil
}

// findOperator finds the only operator that serves a namespace or, if it is empty, the only
// one of the cluster.
func findOperator(ctx context.Context, c client.Client, namespace string) (*installedOperator, error) {
	found, err := findOperators(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var namespaces []string
	for _, o := range found {
		namespaces = append(namespaces, o.namespace)
	}
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
		found.parseArguments()
	}
	return found
}

// parseArguments reads the arguments of the manager. It serves all namespaces unless a flag
// names some.
func (o *installedOperator) parseArguments() {
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	namespaces := flags.StringSlice("watch-namespaces", nil, "")
	agentImage := flags.String("agent-image", o.agentImage, "")
	if flags.Parse(o.arguments) == nil { // Otherwise, the manager doesn't start.
		o.serves, o.agentImage = *namespaces, *agentImage
	}
}

// leaseReader returns a function that reads the Lease of the operator that serves a namespace, or all.
// It looks for the operator once.
func leaseReader(c client.Client, served string) func(context.Context) (*coordinationv1.Lease, error) {
	namespace := ""
	return func(ctx context.Context) (*coordinationv1.Lease, error) {
		if namespace == "" {
			namespace = defaultOperatorNamespace
			if found, err := findOperator(ctx, c, served); err == nil {
				namespace = found.namespace
			}
		}
		return operatorlease.Read(ctx, c, namespace)
	}
}

// warnOfSilentOperators prints a line for each operator of these groups that doesn't run, so
// that their status may be outdated. It prints nothing if that is unknown, for example
// without the permission to read the Lease.
func (c *clusterFlags) warnOfSilentOperators(cmd *cobra.Command, groups []v1.ElectionGroup) {
	ctx, cancel := context.WithTimeout(cmd.Context(), clusterTimeout)
	defer cancel()
	connected, err := c.connect()
	if err != nil {
		return
	}
	installed, err := findOperators(ctx, connected, "")
	if err != nil { // The user may still be allowed to read the Lease.
		installed = []*installedOperator{{namespace: defaultOperatorNamespace}}
	}
	for _, o := range installed {
		if !slices.ContainsFunc(groups, func(g v1.ElectionGroup) bool { return o.serves.Has(g.Namespace) }) {
			continue
		}
		lease, err := operatorlease.Read(ctx, connected, o.namespace)
		if err != nil {
			continue
		}
		now := c.now()
		if since := new(operatorlease.Observer).Observe(lease, now); !since.IsZero() {
			fmt.Fprintln(cmd.ErrOrStderr(), silenceText("The operator in namespace "+o.namespace, now.Sub(since)))
		}
	}
}

// identityURL is the URL of the identity service of the operator in a namespace.
func identityURL(namespace string) string { return "https://conclave-identity." + namespace + ".svc" }
