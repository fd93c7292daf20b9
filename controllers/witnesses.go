package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// readWitnesses adds the pods that may become witnesses, and counts their groups. That takes half a millisecond for
// each thousand, so a step asks for it only when it has to choose one.
func (r *Reconciler) readWitnesses(ctx context.Context, f *facts.Facts) error {
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(r.options.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the witnesses: %w", err)
	}
	f.WitnessGroups = map[string]int{}
	ofNamespace := 0
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
		if err := r.addNode(ctx, f, pod); err != nil {
			return err
		}
		f.Witnesses = append(f.Witnesses, membership.AsMember(pod, f.Group))
	}
	f.WitnessLimit = ofNamespace >= membership.MaxWitnessGroupsOfNamespace
	return nil
}
