package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// manager is who we are in the managed fields of what we write.
const manager = client.FieldOwner("conclave.dev")

// writesMax bounds how many writes of one group are under way.
const writesMax = 16

// together runs independent writes, each to its end, whatever becomes of the others.
type together struct {
	work  sync.WaitGroup
	seats chan struct{}
	mu    sync.Mutex
	errs  []error
}

func (t *together) do(write func() error) {
	t.seats <- struct{}{}
	t.work.Go(func() {
		defer func() { <-t.seats }()
		if err := write(); err != nil {
			t.mu.Lock()
			t.errs = append(t.errs, err)
			t.mu.Unlock()
		}
	})
}

// applyTraffic writes all that follows from the status, and returns what can't be
// written of what leads traffic, and of the events beside it.
func (o *operator) applyTraffic(ctx context.Context, s *scene, p *membership.Plan, result *groupstatus.Result) (unrouted []error, unrecorded error) {
	t := &together{seats: make(chan struct{}, writesMax)}
	t.do(func() error { return o.applyService(ctx, s, p, result.Coordinator) })
	// Who leads gets its label first where many have to be written.
	for _, first := range []bool{true, false} {
		for pod, role := range result.Roles {
			if found := s.pods[pod]; found != nil && first == (role == v1.RoleCoordinator) && found.Labels[v1.RoleLabel(s.key.Name)] != role {
				t.do(func() error { return o.applyRole(ctx, s.key.Name, found, role) })
			}
		}
	}
	t.do(func() error {
		unrecorded = o.recordEvents(ctx, s, result)
		return nil
	})
	t.work.Wait()
	return t.errs, unrecorded
}

func (o *operator) applyConfigMap(ctx context.Context, s *scene, want *corev1.ConfigMap) error {
	have := s.configMap
	if have != nil && maps.Equal(have.Data, want.Data) && len(have.BinaryData) == 0 && ours(have, want) {
		return nil
	}
	// Not applied by force: an operator that was held up must not put an older list
	// in the place of the newer one that another has published.
	write := func() error { return o.client.Create(ctx, want.DeepCopy(), manager) }
	if have != nil {
		next := have.DeepCopy()
		next.Data, next.BinaryData, next.OwnerReferences = want.Data, nil, want.OwnerReferences
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		maps.Copy(next.Labels, want.Labels)
		write = func() error { return o.client.Update(ctx, next, manager) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", want.Name, err)
	}
	return nil
}

// applyService writes the Service and its slice, and removes those of before.
func (o *operator) applyService(ctx context.Context, s *scene, p *membership.Plan, coordinator string) error {
	if p.ServiceHasSelector {
		return o.serveSelected(ctx, s, coordinator)
	}
	if p.Service == nil {
		return o.removeServices(ctx, s, "")
	}
	have := s.service
	if have != nil && left(have, s) {
		if err := o.remove(ctx, have); err != nil {
			return err
		}
		have = nil
	}
	if err := o.writeService(ctx, have, p.Service); err != nil {
		return err
	}
	if !p.EndpointSliceConflict {
		if err := o.applySlice(ctx, s, membership.EndpointSlice(s.group, s.pods[coordinator])); err != nil {
			return err
		}
	}
	return o.removeServices(ctx, s, p.Service.Name)
}

// writeService makes a Service, or gives the one that is there its labels, owner and
// ports. That isn't applied: who handed it over has put down ports, too, and those
// would stay beside ours.
func (o *operator) writeService(ctx context.Context, have, want *corev1.Service) error {
	switch {
	case have == nil:
		return o.apply(ctx, want, coreapply.Service(want.Name, want.Namespace))
	case ours(have, want) && samePorts(have.Spec.Ports, want.Spec.Ports):
		return nil
	}
	next := have.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, want.Labels)
	next.OwnerReferences, next.Spec.Ports = want.OwnerReferences, want.Spec.Ports
	if err := o.client.Patch(ctx, next, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}), manager); err != nil {
		return fmt.Errorf("write Service %s: %w", want.Name, err)
	}
	return nil
}

// serveSelected leaves a Service alone that selects pods itself. Only a slice of ours
// that it has, since it was ours before, goes on to follow the coordinator.
func (o *operator) serveSelected(ctx context.Context, s *scene, coordinator string) error {
	if s.slice != nil && metav1.IsControlledBy(s.slice, s.group) {
		if err := o.applySlice(ctx, s, membership.EndpointSlice(s.group, s.pods[coordinator])); err != nil {
			return err
		}
	}
	return o.removeServices(ctx, s, s.group.Spec.Service.Name)
}

func (o *operator) applySlice(ctx context.Context, s *scene, want *discoveryv1.EndpointSlice) error {
	have := s.slice
	if have != nil && len(want.Endpoints) == 0 {
		// Without an address its type says nothing.
		want.AddressType = have.AddressType
	}
	if have != nil && (have.AddressType != want.AddressType || left(have, s)) {
		if err := o.remove(ctx, have); err != nil {
			return err
		}
		have = nil
	}
	if have != nil && ours(have, want) &&
		equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) {
		return nil
	}
	return o.apply(ctx, want, discoveryapply.EndpointSlice(want.Name, want.Namespace))
}

// left reports whether an object is left from an earlier group of the name. It
// is made anew: the garbage collector removes it anyway, and an owner that
// somebody else has put down, from a backup for example, can't be applied over.
func left(object client.Object, s *scene) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID != s.group.UID
}

// samePorts compares what we say about ports: the API server may add to it.
func samePorts(have, want []corev1.ServicePort) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		h, w := &have[i], &want[i]
		if h.Name != w.Name || h.Port != w.Port || h.TargetPort != w.TargetPort || h.Protocol != w.Protocol {
			return false
		}
	}
	return true
}

// removeServices removes the Services of the group, with their slices, that have
// another name than is wanted.
func (o *operator) removeServices(ctx context.Context, s *scene, wanted string) error {
	mine := []client.ListOption{
		client.InNamespace(s.key.Namespace), client.MatchingLabels{v1.LabelGroup: s.key.Name}, client.UnsafeDisableDeepCopy,
	}
	var services corev1.ServiceList
	if err := o.cache.List(ctx, &services, mine...); err != nil {
		return fmt.Errorf("list the Services: %w", err)
	}
	var slices discoveryv1.EndpointSliceList
	if err := o.cache.List(ctx, &slices, mine...); err != nil {
		return fmt.Errorf("list the EndpointSlices: %w", err)
	}
	var old []client.Object
	for i := range slices.Items {
		if slice := &slices.Items[i]; slice.Labels[discoveryv1.LabelServiceName] != wanted {
			old = append(old, slice.DeepCopy())
		}
	}
	for i := range services.Items {
		if service := &services.Items[i]; service.Name != wanted {
			old = append(old, service.DeepCopy())
		}
	}
	for _, object := range old {
		if !metav1.IsControlledBy(object, s.group) || object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := o.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object as it was seen, and no other one of the name.
func (o *operator) remove(ctx context.Context, object client.Object) error {
	err := o.client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

// ours reports whether an object has the labels and the owner that it has to have.
func ours(have, want client.Object) bool {
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(have.GetOwnerReferences(), want.GetOwnerReferences())
}

// apply applies an object as a whole. What it has to be applied with is the same
// in other types, of which each field may be lacking.
func (o *operator) apply(ctx context.Context, want client.Object, as runtime.ApplyConfiguration) error {
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, as); err != nil {
		return err
	}
	if err := o.client.Apply(ctx, as, manager, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", kindOf(want), want.GetName(), err)
	}
	return nil
}

// kindOf is the kind of an object, for people.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

// applyRole sets or removes the role label of a pod, whoever has set it.
func (o *operator) applyRole(ctx context.Context, group string, seen *corev1.Pod, role string) error {
	key, label := client.ObjectKeyFromObject(seen), v1.RoleLabel(group)
	// Our own write of a moment ago may not have been in what was seen.
	pod := &corev1.Pod{}
	err := o.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read a pod: %w", err)
	case pod.UID != seen.UID, pod.Labels[label] == role:
		return nil
	}
	patch, err := labelPatch(pod.UID, label, role)
	if err != nil {
		return err
	}
	err = o.client.Patch(ctx, pod.DeepCopy(), patch, manager)
	if err != nil && !apierrors.IsNotFound(err) && !ofAnother(err) {
		return fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	return nil
}

// ofAnother reports whether a patch with a UID was refused since the name is
// another object's by now: its UID can't change.
func ofAnother(err error) bool {
	refusal, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && refusal.ErrStatus.Details != nil && slices.ContainsFunc(refusal.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// labelPatch sets a label of a pod, or removes one that has no value. The UID has it
// fail where the name is another pod's by now. It isn't applied, as all else is: for
// that, the API server takes all of the pod apart, twice in each election (ADR 10).
func labelPatch(pod types.UID, label, value string) (client.Patch, error) {
	var wanted any
	if value != "" {
		wanted = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod, "labels": map[string]any{label: wanted}}})
	return client.RawPatch(types.MergePatchType, patch), err
}
