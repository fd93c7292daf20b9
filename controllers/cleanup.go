package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers/streams"
)

// cleanUp removes what is left of a group that is gone or going, also if it went
// while no operator ran: the role labels at its pods, and its agents, who go on until
// they are told. What it owned, the API server's garbage collector removes; of a group
// that is deleted in the foreground, before the group itself, so it isn't made anew.
func (o *operator) cleanUp(ctx context.Context, key types.NamespacedName) error {
	o.memories.forget(key)
	o.meters.forget(key)
	var pods corev1.PodList
	err := o.cache.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{podsByGroup: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the pods of a group that is gone: %w", err)
	}
	var labelled []*corev1.Pod
	for i := range pods.Items {
		if _, ok := pods.Items[i].Labels[v1.RoleLabel(key.Name)]; ok {
			labelled = append(labelled, &pods.Items[i])
		}
	}
	voices := o.streams.Reports(key)
	if len(labelled) == 0 && len(voices) == 0 {
		return nil
	}
	// A cache that is behind must not have a group fall apart that was just made.
	now := &v1.ElectionGroup{}
	if err := o.live.Get(ctx, key, now); client.IgnoreNotFound(err) != nil || err == nil && now.DeletionTimestamp == nil {
		return err
	}
	for pod, voice := range voices {
		o.streams.Send(types.NamespacedName{Namespace: key.Namespace, Name: pod}, streams.LeaveGroup(key.Name, voice.Report.UID))
	}
	t := &together{seats: make(chan struct{}, writesMax)}
	for _, pod := range labelled {
		t.do(func() error { return o.applyRole(ctx, key.Name, pod, "") })
	}
	t.work.Wait()
	return errors.Join(t.errs...)
}
