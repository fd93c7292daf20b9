package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

const (
	// uncachedPodRecheck is how often a reconcile reads a pod that the cache lacks.
	uncachedPodRecheck = time.Second
	// unnamedPodsRecheck is how often a reconcile checks which pods a selector matches
	// that selects none.
	unnamedPodsRecheck = 30 * time.Second
)

// gatherUnnamedPods adds pods that match the selector but don't name the group, if the
// selector selects no pods. The status explains then what these pods lack. They aren't
// in the index, so no watch triggers a reconcile when they change.
func (r *Reconciler) gatherUnnamedPods(ctx context.Context, s *snapshot) error {
	selects := membership.Selects(s.group)
	if s.group.Spec.Selector == nil {
		return nil
	}
	for _, pod := range s.pods {
		if selects(pod) {
			return nil
		}
	}
	var all corev1.PodList
	if err := r.cached.List(ctx, &all, client.InNamespace(s.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the pods of the namespace: %w", err)
	}
	matches := membership.MatchesLabels(s.group)
	for i := range all.Items {
		if pod := &all.Items[i]; matches(pod) {
			s.pods[pod.Name] = pod
		}
	}
	s.deadline.reached(s.now.Add(unnamedPodsRecheck), s.now)
	return nil
}

// confirmMissingPods reads pods from the API server whose absence is about to count:
// the cache may be behind.
func (r *Reconciler) confirmMissingPods(ctx context.Context, s *snapshot) error {
	var mu sync.Mutex
	parallel := newParallel()
	for _, name := range s.newlyMissing() {
		parallel.run(func() error {
			var pod corev1.Pod
			err := r.live.Get(ctx, types.NamespacedName{Namespace: s.key.Namespace, Name: name}, &pod)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read pod %s, which isn't in the cache: %w", name, err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				s.pods[name] = &pod
				// If the pod is deleted before the cache has seen it, no watch reports that.
				s.deadline.reached(s.now.Add(uncachedPodRecheck), s.now)
			}
			return nil
		})
	}
	return errors.Join(parallel.wait()...)
}

// newlyMissing returns the members of the previous list whose pods begin to be missing
// with this reconcile. A pod that exists, whatever the cache says, may grant by that
// list, so its last grant hasn't begun to expire. A pod that is created later begins
// with the list in force.
func (s *snapshot) newlyMissing() []string {
	list := s.group.Status.MemberList
	if list == nil || list.State != v1.ListAdopting || !s.isPublished(list) {
		return nil
	}
	var names []string
	for _, m := range list.Previous.Members {
		_, known := s.state.missingSince[m.Pod]
		if s.isMissing(m.Pod) && !(known && s.state.missingVersion == list.Version) {
			names = append(names, m.Pod)
		}
	}
	return names
}
