package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// fieldOwner is the operator in the managed fields of what it writes.
const fieldOwner = client.FieldOwner("conclave.dev")

// maxParallelWrites bounds the number of concurrent requests for one group.
const maxParallelWrites = 16

// parallel runs independent requests. One that fails doesn't cancel the others.
type parallel struct {
	work  sync.WaitGroup
	slots chan struct{}
	mu    sync.Mutex
	errs  []error
}

func newParallel() *parallel { return &parallel{slots: make(chan struct{}, maxParallelWrites)} }

func (p *parallel) run(request func() error) {
	p.slots <- struct{}{}
	p.work.Go(func() {
		defer func() { <-p.slots }()
		if err := request(); err != nil {
			p.mu.Lock()
			p.errs = append(p.errs, err)
			p.mu.Unlock()
		}
	})
}

func (p *parallel) wait() []error {
	p.work.Wait()
	return p.errs
}

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
	r.charge(pod.Namespace)
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
