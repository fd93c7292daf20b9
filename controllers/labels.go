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
	case pod.UID != seen.UID, pod.Labels[label] == role:
		return nil
	}
	patch, err := labelPatch(pod.UID, label, role)
	if err != nil {
		return err
	}
	err = r.writer.Patch(ctx, pod.DeepCopy(), patch, fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !isUIDMismatch(err) {
		return fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	return nil
}

// labelPatch sets a label of a pod, or removes it if the value is empty. The UID makes
// the patch fail if another pod has the name by now. It is a merge patch, unlike the
// other writes: for server-side apply, the API server processes the whole pod, twice in
// each election (ADR 10).
func labelPatch(pod types.UID, label, value string) (client.Patch, error) {
	var wanted any
	if value != "" {
		wanted = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod, "labels": map[string]any{label: wanted}}})
	return client.RawPatch(types.MergePatchType, patch), err
}

// isUIDMismatch reports whether the API server rejected a patch because another object
// has the name by now: a patch can't change a UID.
func isUIDMismatch(err error) bool {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && rejected.ErrStatus.Details != nil && slices.ContainsFunc(rejected.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
