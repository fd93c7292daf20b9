package controllers

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// gatherWitnesses adds the pods that may become witnesses, and connects to the present ones.
func (r *Reconciler) gatherWitnesses(ctx context.Context, f *facts.Facts) error {
	for _, pod := range f.Pods {
		if v1.IsWitness(pod.Name) && membership.IsFollowed(pod) {
			r.agents.Follow(agents.Agent{
				Pod: client.ObjectKeyFromObject(pod), UID: pod.UID, Witness: true,
				Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(control.OperatorPort)),
			}, 0)
			r.addAgent(f, pod)
		}
	}
	if !membership.MayNeedWitness(f) {
		return nil
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(r.options.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the witnesses: %w", err)
	}
	candidates, ofNamespace := facts.New(f.Group), 0
	f.WitnessGroups = map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !v1.IsWitness(pod.Name) {
			continue
		}
		for _, group := range r.groupsWithMember(ctx, types.NamespacedName{Name: pod.Name}) {
			f.WitnessGroups[pod.Name]++
			if group.Namespace == f.Group.Namespace {
				ofNamespace++
			}
		}
		candidates.Pods[pod.Name] = membership.AsMember(pod, f.Group)
		f.Witnesses = append(f.Witnesses, candidates.Pods[pod.Name])
	}
	f.WitnessLimit = ofNamespace >= membership.MaxWitnessGroupsOfNamespace
	err = r.addPods(ctx, candidates, nil)
	maps.Copy(f.Nodes, candidates.Nodes)
	return err
}
