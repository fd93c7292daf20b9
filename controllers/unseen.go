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
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

const (
	// unseenAgain is how often is looked for a pod that the cache lacks.
	unseenAgain = time.Second
	// muteAgain is how often is looked whom a selector matches that finds nobody.
	muteAgain = 30 * time.Second
)

// gatherMute looks for pods that the selector of a group without members matches, and
// that don't name it: the index doesn't find them. What becomes of them, nobody tells us.
func (o *operator) gatherMute(ctx context.Context, s *scene) error {
	selected := membership.Selects(s.group)
	if s.group.Spec.Selector == nil {
		return nil
	}
	for _, pod := range s.pods {
		if selected(pod) {
			return nil
		}
	}
	var all corev1.PodList
	if err := o.cache.List(ctx, &all, client.InNamespace(s.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the pods of the namespace: %w", err)
	}
	matches := membership.MatchesLabels(s.group)
	for i := range all.Items {
		if pod := &all.Items[i]; matches(pod) {
			s.pods[pod.Name] = pod
		}
	}
	s.again.due(s.now.Add(muteAgain), s.now)
	return nil
}

// gatherUnseen asks the API server itself for pods whose absence is about to count: the
// cache may be behind.
func (o *operator) gatherUnseen(ctx context.Context, s *scene) error {
	var mu sync.Mutex
	t := &together{seats: make(chan struct{}, writesMax)}
	for _, name := range s.unseen() {
		t.do(func() error {
			var pod corev1.Pod
			err := o.live.Get(ctx, types.NamespacedName{Namespace: s.key.Namespace, Name: name}, &pod)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read a pod that isn't in the cache: %w", err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				s.pods[name] = &pod
				// If it goes before the cache has seen it, nobody will tell us.
				s.again.due(s.now.Add(unseenAgain), s.now)
			}
			return nil
		})
	}
	t.work.Wait()
	return errors.Join(t.errs...)
}

// unseen are the members of the previous list that have no pod from now on. A pod that
// is there, whatever the cache says, may grant by that list, and what it granted hasn't
// begun to run out. One that comes later begins with the list in force.
func (s *scene) unseen() []string {
	list := s.group.Status.MemberList
	if list == nil || list.State != v1.ListAdopting || !s.isPublished(list) {
		return nil
	}
	var names []string
	for _, m := range list.Previous.Members {
		_, waiting := s.memory.missing[m.Pod]
		if s.lacks(m.Pod) && !(waiting && s.memory.version == list.Version) {
			names = append(names, m.Pod)
		}
	}
	return names
}
