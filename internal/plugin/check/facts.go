package check

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
)

// gather reads what it can. It returns an error only if the cluster can't be reached, or if it
// has no ElectionGroups or not the named one.
func (o *options) gather(ctx context.Context, args []string) (*rules.Facts, error) {
	connected, err := o.cluster.Connect()
	if err != nil {
		return nil, err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, err
	}
	if o.allNamespaces {
		namespace = ""
	}
	f := &rules.Facts{Namespace: namespace, Unknown: map[rules.Fact]string{}}
	var groups v1.ElectionGroupList
	var pods corev1.PodList
	var policies networkingv1.NetworkPolicyList
	for _, read := range []struct {
		fact rules.Fact
		from func() error
	}{
		{rules.Groups, func() error { return connected.List(ctx, &groups, client.InNamespace(namespace)) }},
		{rules.Pods, func() error { return connected.List(ctx, &pods, client.InNamespace(namespace)) }},
		{rules.Policies, func() error { return connected.List(ctx, &policies, client.InNamespace(namespace)) }},
		{rules.Operators, func() error { return gatherOperators(ctx, connected, f) }},
		{rules.Webhook, func() error { return gatherWebhook(ctx, connected, f) }},
	} {
		err := read.from()
		var status apierrors.APIStatus
		if errors.As(err, &status) && !apierrors.IsNotFound(err) && !apierrors.IsUnauthorized(err) {
			f.Unknown[read.fact] = clusteraccess.RequestError(err).Error()
		} else if err != nil {
			return nil, clusteraccess.RequestError(err)
		}
	}
	f.Groups, f.Pods, f.Policies, f.Now = groups.Items, pods.Items, policies.Items, o.cluster.Now()
	if f.Unknown[rules.Policies] == "" && namespace != "" {
		gatherOperatorPolicies(ctx, connected, f)
	}
	if len(args) == 0 {
		if len(f.Groups)+len(f.Pods) == 0 && namespace != "" {
			if err := connected.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
				return nil, clusteraccess.RequestError(err)
			}
		}
		return f, nil
	}
	group, err := clusteraccess.GetGroup(ctx, connected, namespace, args[0])
	if err != nil {
		return nil, err
	}
	if f.Unknown[rules.Groups] != "" { // The user may read the group, and not list all.
		delete(f.Unknown, rules.Groups)
		f.Groups, f.OnlyGroup = []v1.ElectionGroup{*group}, true
	}
	f.Group, f.Pods = group.Name, podsOfGroup(group, f.Pods)
	return f, nil
}

// podsOfGroup returns the pods that belong to a group, or that would if their labels and annotations were correct.
func podsOfGroup(g *v1.ElectionGroup, pods []corev1.Pod) []corev1.Pod {
	matches := membership.MatchesLabels(g)
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		member := slices.ContainsFunc(g.Spec.Members, func(m v1.Member) bool { return m.Pod == p.Name })
		return !member && !matches(&p) && !membership.NamesGroup(&p, g.Name)
	})
}

func gatherOperators(ctx context.Context, c client.Client, f *rules.Facts) error {
	deployments, err := clusteraccess.ListOperators(ctx, c)
	for i := range deployments {
		found, wanted := clusteraccess.OperatorOf(&deployments[i]), int32(1)
		if replicas := deployments[i].Spec.Replicas; replicas != nil {
			wanted = *replicas
		}
		f.Operators = append(f.Operators, rules.Operator{
			Namespace: found.Namespace, Image: found.Image, AgentImage: found.AgentImage,
			Wanted: wanted, Available: found.Available,
			Template: deployments[i].Spec.Template, Lacks: lackedPermissions(ctx, c, &deployments[i]),
		})
	}
	return err
}

// permissions are those of the operator whose lack nobody notices except in its log.
var permissions = []authorizationv1.ResourceAttributes{
	{Verb: "update", Group: v1.GroupVersion.Group, Resource: "electiongroups", Subresource: "status"},
	{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
}

// lackedPermissions returns which of the permissions an operator lacks, as far as the user may ask.
func lackedPermissions(ctx context.Context, c client.Client, d *appsv1.Deployment) (lacked []string) {
	account := d.Namespace + ":" + cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	for _, p := range permissions {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &p,
		}}
		if c.Create(ctx, review) == nil && !review.Status.Allowed {
			lacked = append(lacked, p.Verb+" "+path.Join(p.Resource, p.Subresource))
		}
	}
	return lacked
}

// gatherOperatorPolicies reads the policies of other namespaces in which operators are, if the user may do so.
func gatherOperatorPolicies(ctx context.Context, c client.Client, f *rules.Facts) {
	for i := range f.Operators {
		var policies networkingv1.NetworkPolicyList
		if namespace := f.Operators[i].Namespace; namespace != f.Namespace &&
			c.List(ctx, &policies, client.InNamespace(namespace)) == nil {
			f.Policies = append(f.Policies, policies.Items...)
		}
	}
}

// webhookConfiguration is the name of the operator's webhook configuration.
const webhookConfiguration = "conclave"

func gatherWebhook(ctx context.Context, c client.Client, f *rules.Facts) error {
	found := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := c.Get(ctx, client.ObjectKey{Name: webhookConfiguration}, found)
	if err == nil {
		f.Webhook = found
	}
	return client.IgnoreNotFound(err)
}
