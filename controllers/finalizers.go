package controllers

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// applyFinalizers adds the finalizer of a group to pods, or removes it.
// The cache may be behind, so the API server may have applied a patch before.
func (r *Reconciler) applyFinalizers(ctx context.Context, group string, pods []*corev1.Pod, add bool) error {
	parallel := newParallel()
	for _, pod := range pods {
		parallel.run(func() error {
			patch, err := v1.StopFinalizerPatch(pod.UID, group, add)
			if err != nil {
				return err
			}
			_, err = r.patchPod(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch), "write the finalizer of pod")
			return err
		})
	}
	return errors.Join(parallel.wait()...)
}
