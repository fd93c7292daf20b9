package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

const (
	// minExplanationRecheck and maxExplanationRecheck bound the time between two reads of pods that explain why a group
	// has none: it is as long as that has been so. No watch reports their changes.
	minExplanationRecheck, maxExplanationRecheck = 2 * time.Second, 30 * time.Minute
	// maxExplainingPods bounds the pods that are read for a group, and maxExplainingLabels what is retained of each.
	maxExplainingPods, maxExplainingLabels = 8, 1 << 10
	// explanationsPerSecond limits the reads for all groups: any number of them may have no pods.
	explanationsPerSecond, explanationsBurst = 10, 200
)

// explainingPods are pods that the cache leaves out, because they haven't opted in, and that the status should explain:
// members, or pods that match a selector that selects none.
type explainingPods struct {
	// wanted says which pods were read. They count since, and are read again at next.
	wanted      string
	since, next time.Time
	pods        []*corev1.Pod
}

// addExplainingPods adds the pods without an agent that the status should explain. They may be gone by now, so they
// don't count when the operator decides which members are missing.
func (r *Reconciler) addExplainingPods(ctx context.Context, s *snapshot) {
	missing, selector := s.unknownMembers(), s.selectorOfNone()
	if len(missing) == 0 && selector == nil {
		s.state.explaining = explainingPods{}
		return
	}
	known := &s.state.explaining
	if wanted := fmt.Sprint(missing, selector); known.wanted != wanted {
		*known = explainingPods{wanted: wanted, since: s.Now}
	}
	if !s.Now.Before(known.next) {
		wait := minExplanationRecheck
		if r.explanations.AllowN(s.Now, len(missing)+1) {
			known.pods = r.readExplainingPods(ctx, s, missing, selector)
			wait = min(max(s.Now.Sub(known.since), minExplanationRecheck), maxExplanationRecheck)
		}
		known.next = s.Now.Add(wait)
	}
	s.wakeUp(known.next)
	for _, pod := range known.pods {
		if s.Pods[pod.Name] == nil {
			s.Pods[pod.Name], s.Explaining[pod.Name] = pod, true
		}
	}
}

// unknownMembers returns members without a pod in the snapshot, at most maxExplainingPods.
func (s *snapshot) unknownMembers() (names []string) {
	for _, name := range cache.MembersOf(s.Group) {
		if s.Pods[name] == nil && len(names) < maxExplainingPods {
			names = append(names, name)
		}
	}
	return names
}

// selectorOfNone returns the group's selector if it selects no pod of the snapshot, and otherwise nil.
func (s *snapshot) selectorOfNone() labels.Selector {
	if s.Group.Spec.Selector == nil {
		return nil
	}
	selects := membership.Selects(s.Group)
	for _, pod := range s.Pods {
		if selects(pod) {
			return nil
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Group.Spec.Selector.LabelSelector())
	if err != nil {
		return nil // The schema rejects such a selector.
	}
	return selector
}

// readExplainingPods reads pods from the API server. A failed read isn't worth more than another one later.
func (r *Reconciler) readExplainingPods(ctx context.Context, s *snapshot, names []string,
	selector labels.Selector,
) (found []*corev1.Pod) {
	for _, name := range names {
		var pod corev1.Pod
		if err := r.live.Get(ctx, s.pod(name), &pod); err == nil {
			found = append(found, explainingPod(&pod))
		}
	}
	if selector == nil {
		return found
	}
	var all corev1.PodList
	if err := r.live.List(ctx, &all, client.InNamespace(s.Group.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxExplainingPods)); err == nil {
		for i := range all.Items {
			found = append(found, explainingPod(&all.Items[i]))
		}
	}
	return found
}

// explainingPod returns what the status explains about a pod without an agent.
func explainingPod(pod *corev1.Pod) *corev1.Pod {
	stripped := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, DeletionTimestamp: pod.DeletionTimestamp,
	}}
	stripped.Spec.NodeName, stripped.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	if membership.HasAgent(pod) {
		stripped.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer}}
	}
	size := 0
	for key, value := range pod.Labels {
		size += len(key) + len(value)
	}
	if size <= maxExplainingLabels {
		stripped.Labels = pod.Labels
	}
	return stripped
}
