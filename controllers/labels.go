package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// metadataPatch sets labels and annotations of a pod, and removes those whose value is nil. The UID makes the patch
// fail if another pod has the name by now. It is a merge patch, unlike the other writes: for server-side apply, the API
// server processes the whole pod, twice in each election (ADR 10).
func metadataPatch(pod types.UID, labels, annotations map[string]any) (client.Patch, error) {
	metadata := map[string]any{"uid": pod}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	return client.RawPatch(types.MergePatchType, patch), err
}

// patchPod applies a patch that has the pod's UID. It reports whether the pod still exists.
// An error begins with what the patch does.
func (r *Reconciler) patchPod(ctx context.Context, pod *corev1.Pod, patch client.Patch,
	what string,
) (exists bool, err error) {
	err = r.writer.Patch(ctx, pod.DeepCopy(), patch, fieldOwner)
	if apierrors.IsNotFound(err) || isUIDMismatch(err) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("%s %s: %w", what, pod.Name, err)
	}
	return true, nil
}

// isUIDMismatch reports whether the API server rejected a patch because another object
// has the name by now: a patch can't change a UID.
func isUIDMismatch(err error) bool {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && rejected.ErrStatus.Details != nil &&
		slices.ContainsFunc(rejected.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Field == "metadata.uid"
		})
}
