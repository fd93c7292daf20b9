package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// applyService writes the Service and its EndpointSlice, and deletes those of an earlier name.
func (r *Reconciler) applyService(ctx context.Context, s *snapshot, t *decide.Traffic) (err error) {
	p := t.Plan
	if s.ServicesForbidden {
		return nil
	}
	defer func() {
		if apierrors.IsForbidden(err) {
			r.services.refused.Store(true)
		}
	}()
	var serviceErr error
	if p.Service != nil {
		have := s.Service
		if have != nil && (membership.OfOtherUID(have, s.Group) || isOtherType(have, p.Service)) {
			if err := r.deleteService(ctx, s, have); err != nil {
				return err
			}
			have = nil
		}
		if serviceErr = r.writeService(ctx, have, p.Service); serviceErr != nil && have == nil {
			return serviceErr
		}
	}
	// A Service that exists follows the coordinator even if it can't be changed.
	if p.WritesEndpointSlice {
		if err := r.applyEndpointSlice(ctx, s, t); err != nil {
			return errors.Join(serviceErr, err)
		}
	}
	if serviceErr != nil {
		return serviceErr
	}
	return r.deleteServices(ctx, s, p.KeptService)
}

// isOtherType reports whether a Service must be replaced: whether it has a cluster IP is immutable.
// One of another type than ClusterIP was created by a user.
func isOtherType(have, want *corev1.Service) bool {
	headless := func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }
	return have.Spec.Type == corev1.ServiceTypeClusterIP && headless(have) != headless(want)
}

// writeService creates the Service, or sets the labels, owner and ports of the existing one. It patches instead of
// applying: if a user hands a Service over, server-side apply would retain the user's ports beside those of the group.
func (r *Reconciler) writeService(ctx context.Context, have, want *corev1.Service) error {
	switch {
	case have == nil:
		return r.serverSideApply(ctx, want, coreapply.Service(want.Name, want.Namespace))
	case sameService(have, want):
		return nil
	}
	whole := &corev1.Service{}
	if err := r.readSame(ctx, have, whole); err != nil {
		return err
	}
	next := whole.DeepCopy()
	next.Spec.Ports, next.Spec.PublishNotReadyAddresses = want.Spec.Ports, want.Spec.PublishNotReadyAddresses
	setMetadata(next, want)
	r.charge(want.Namespace)
	if err := r.writer.Patch(ctx, next, client.MergeFromWithOptions(whole, client.MergeFromWithOptimisticLock{}),
		fieldOwner); err != nil {
		return fmt.Errorf("write Service %s: %w", want.Name, err)
	}
	return nil
}

func (r *Reconciler) applyEndpointSlice(ctx context.Context, s *snapshot, t *decide.Traffic) error {
	want := membership.EndpointSlice(s.Group, s.Service, membership.Endpoints(s.Facts, t.Coordinator)...)
	have := s.EndpointSlice
	if have != nil && len(want.Endpoints) == 0 {
		// An empty slice is valid with any address type, and the type is immutable.
		want.AddressType = have.AddressType
	}
	if have != nil && (have.AddressType != want.AddressType || membership.OfOtherUID(have, s.Group)) {
		if err := r.delete(ctx, have); err != nil {
			return err
		}
		have = nil
	}
	if have != nil && len(want.Endpoints) == 0 && t.KeepsEndpoint {
		return nil
	}
	if have != nil && sameMetadata(have, want) &&
		equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) {
		return nil
	}
	return r.serverSideApply(ctx, want, discoveryapply.EndpointSlice(want.Name, want.Namespace))
}

func sameService(have, want *corev1.Service) bool {
	return sameMetadata(have, want) && samePorts(have.Spec.Ports, want.Spec.Ports) &&
		have.Spec.PublishNotReadyAddresses == want.Spec.PublishNotReadyAddresses
}

// samePorts compares the fields that the operator sets: the API server may set others.
func samePorts(have, want []corev1.ServicePort) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		h, w := &have[i], &want[i]
		if h.Name != w.Name || h.Port != w.Port || h.TargetPort != w.TargetPort || h.Protocol != w.Protocol ||
			!reflect.DeepEqual(h.AppProtocol, w.AppProtocol) {
			return false
		}
	}
	return true
}

// deleteServices deletes the Services of the group that have another name than the
// wanted one, with their EndpointSlices.
func (r *Reconciler) deleteServices(ctx context.Context, s *snapshot, wanted string) error {
	ofGroup := []client.ListOption{
		client.InNamespace(s.Group.Namespace),
		client.MatchingLabels{v1.LabelGroup: s.Group.Name},
		client.UnsafeDisableDeepCopy,
	}
	var services corev1.ServiceList
	if err := r.cached.List(ctx, &services, ofGroup...); err != nil {
		return fmt.Errorf("list the Services: %w", err)
	}
	var endpointSlices discoveryv1.EndpointSliceList
	if err := r.cached.List(ctx, &endpointSlices, ofGroup...); err != nil {
		return fmt.Errorf("list the EndpointSlices: %w", err)
	}
	var old []client.Object
	for i := range endpointSlices.Items {
		if slice := &endpointSlices.Items[i]; slice.Labels[discoveryv1.LabelServiceName] != wanted {
			old = append(old, slice.DeepCopy())
		}
	}
	for i := range services.Items {
		if service := &services.Items[i]; service.Name != wanted {
			old = append(old, service.DeepCopy())
		}
	}
	for _, object := range old {
		if !metav1.IsControlledBy(object, s.Group) || object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.deleteService(ctx, s, object); err != nil {
			return err
		}
	}
	return nil
}

// deleteService deletes a Service, or its EndpointSlice, that the spec no longer wants. Nothing
// can restore the cluster IP of a Service, so it asks the API server whether this is the spec.
func (r *Reconciler) deleteService(ctx context.Context, s *snapshot, object client.Object) error {
	if err := r.confirm(ctx, s.Group); err != nil {
		return err
	}
	return r.delete(ctx, object)
}

// delete deletes the object that was read, and not another one of the same name.
func (r *Reconciler) delete(ctx context.Context, object client.Object) error {
	options := []client.DeleteOption{client.Preconditions{UID: new(object.GetUID())}}
	if object.GetLabels()[v1.LabelGroup] == "" {
		// The cache doesn't have it. So it would never learn of the deletion, and reads would wait for that.
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	r.charge(object.GetNamespace())
	err := r.writer.Delete(ctx, object, options...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

// setMetadata gives an object the wanted labels and controller. Others may add labels, and
// owners that aren't controllers: those remain.
func setMetadata(object, want client.Object) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.GetLabels())
	object.SetLabels(labels)
	owners := slices.DeleteFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Controller != nil && *o.Controller
	})
	object.SetOwnerReferences(append(owners, want.GetOwnerReferences()...))
}

// sameMetadata reports whether an object has the wanted labels and controller.
func sameMetadata(have, want client.Object) bool {
	labels := have.GetLabels()
	for key, value := range want.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(metav1.GetControllerOf(have), metav1.GetControllerOf(want))
}

// serverSideApply applies an object as a whole. It converts the object to its apply
// configuration, in which each field is optional.
func (r *Reconciler) serverSideApply(ctx context.Context, want client.Object, as runtime.ApplyConfiguration) error {
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, as); err != nil {
		return err
	}
	r.charge(want.GetNamespace())
	if err := r.writer.Apply(ctx, as, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", kindOf(want), want.GetName(), err)
	}
	return nil
}
