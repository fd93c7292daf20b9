package enroll

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// hold adds the finalizers of the pod's groups in Strict mode. A pod cannot vote without
// a certificate, so none that has voted disappears from the API server before it is known
// to have stopped, and no pod of the same name is created before.
func (s *Service) hold(ctx context.Context, pod *corev1.Pod, groups []*v1.ElectionGroup) error {
	for _, group := range groups {
		if group.Spec.Safety.Mode != v1.Strict || slices.Contains(pod.Finalizers, v1.StopFinalizer(group.Name)) {
			continue
		}
		patch, err := v1.StopFinalizerPatch(pod.UID, group.Name, true)
		if err != nil {
			return err
		}
		err = s.Client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
		switch {
		case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
			// The API server accepts no new finalizers for a pod that is being deleted.
			return refuse(PodGone, "pod %s/%s is being deleted", pod.Namespace, pod.Name)
		case err != nil:
			return unavailable("cannot add a finalizer to the pod", err)
		}
	}
	return nil
}
