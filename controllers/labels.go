package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide"
)

// applyRole sets or removes the role label of a pod, whichever manager has set it.
func (r *Reconciler) applyRole(ctx context.Context, group string, seen *corev1.Pod, role string) error {
	key, label := client.ObjectKeyFromObject(seen), v1.RoleLabel(group)
	// The snapshot may lack a label that the previous reconcile has written.
	pod := &corev1.Pod{}
	err := r.writer.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s: %w", key.Name, err)
	case pod.UID != seen.UID, decide.HasRole(pod, label, role):
		return nil
	}
	labels, annotations := map[string]any{}, map[string]any{}
	if pod.Labels[label] != role {
		labels[label] = role
		if role == "" {
			labels[label] = nil
		}
	}
	if cost, change := decide.DeletionCost(pod, label, role); change {
		annotations[corev1.PodDeletionCost] = cost
	}
	patch, err := metadataPatch(pod.UID, labels, annotations)
	if err != nil {
		return err
	}
	_, err = r.patchPod(ctx, pod, patch, "label pod")
	return err
}
