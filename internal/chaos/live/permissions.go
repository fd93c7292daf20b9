package live

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// permission is a permission of the caller, in a namespace or, if that is empty, in the whole cluster.
type permission struct{ verb, group, resource, subresource, namespace string }

func (p permission) String() string {
	text := p.verb + " " + p.resource
	if p.subresource != "" {
		text += "/" + p.subresource
	}
	if p.namespace != "" {
		text += " in namespace " + p.namespace
	}
	return text
}

// toInject returns the permissions that faults of a kind need.
func (r *Run) toInject(kind string) []permission {
	evict := permission{"create", "", "pods", "eviction", r.Subject.namespace()}
	node := []permission{{"get", "", "nodes", "", ""}, {"patch", "", "nodes", "", ""}}
	switch kind {
	case chaos.Pod, chaos.ForcePod, chaos.Two, chaos.All, chaos.KillAgent, chaos.KillApp: // see replaceRestarted
		return []permission{{"delete", "", "pods", "", r.Subject.namespace()}}
	case chaos.Evict:
		return []permission{evict}
	case chaos.Cordon:
		return node
	case chaos.Drain:
		return append(node, evict)
	case chaos.Manager:
		return []permission{
			{"list", "", "pods", "", r.OperatorNamespace}, {"deletecollection", "", "pods", "", r.OperatorNamespace},
		}
	}
	return nil
}

// toRollOut returns the permissions that a restart of these pods by their owners needs.
func toRollOut(pods []*corev1.Pod) (all []permission) {
	owners := map[string]string{"StatefulSet": "statefulsets", "ReplicaSet": "deployments", "DaemonSet": "daemonsets"}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owners[owner.Kind] == "" {
			continue // The fault will be refused.
		}
		resource := owners[owner.Kind]
		all = append(all, permission{"get", "apps", resource, "", pod.Namespace},
			permission{"patch", "apps", resource, "", pod.Namespace})
		if owner.Kind == "ReplicaSet" { // Its owner is the Deployment.
			all = append(all, permission{"get", "apps", "replicasets", "", pod.Namespace})
		}
	}
	slices.SortFunc(all, func(a, b permission) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// missing returns the permissions that the caller doesn't have.
func missing(ctx context.Context, c client.Client, needed []permission) (denied []string, err error) {
	for _, p := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			denied = append(denied, p.String())
		}
	}
	return denied, nil
}

// CheckObservable returns an error if the caller may not observe the subject.
func (r *Run) CheckObservable(ctx context.Context) error {
	needed := r.Subject.permissions()
	for _, verb := range []string{"list", "watch"} {
		needed = append(needed, permission{verb, "", "pods", "", r.Subject.namespace()})
	}
	denied, err := missing(ctx, r.Client, needed)
	if err == nil && len(denied) > 0 {
		err = fmt.Errorf("to observe %s, you need the permission to %s", r.Subject, strings.Join(denied, ", "))
	}
	return err
}

// NotPossible returns why faults of a kind aren't possible on this cluster or for this user, or "".
func (r *Run) NotPossible(ctx context.Context, kind chaos.Kind) (string, error) {
	if kind.Access == chaos.ByMachine && r.Machines == nil {
		return "it needs the machines of the cluster: see --machines", nil
	}
	if kind.Name == chaos.Manager && r.OperatorNamespace == "" {
		return "it isn't known where the operator is: see --operator-namespace", nil
	}
	if kind.Access == chaos.ByMachine {
		pods, err := candidates(ctx, r.Client, r.Subject)
		if err != nil {
			return "", err
		}
		if len(pods) > 0 {
			if reason := r.Machines.notPossible(ctx, kind.Name, pods[0].Spec.NodeName); reason != "" {
				return reason, nil
			}
		}
	}
	needed := r.toInject(kind.Name)
	if kind.Name == chaos.Rollout {
		pods, err := candidates(ctx, r.Client, r.Subject)
		if err != nil {
			return "", err
		}
		needed = toRollOut(pods)
	}
	return denied(ctx, r.Client, needed)
}

// denied returns which permissions the caller lacks, as a reason.
func denied(ctx context.Context, c client.Client, needed []permission) (string, error) {
	lacks, err := missing(ctx, c, needed)
	if err != nil || len(lacks) == 0 {
		return "", err
	}
	return "you need the permission to " + strings.Join(lacks, ", "), nil
}
