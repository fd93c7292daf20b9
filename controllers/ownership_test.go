package controllers_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// createAsUser creates an object with another field owner.
func (e *env) createAsUser(object client.Object) {
	e.t.Helper()
	must.Succeed(e.t, e.client.Create(e.t.Context(), object, client.FieldOwner("kubectl-create")))
}

// expectUnchanged expects that an object hasn't been written since it was read.
func (e *env) expectUnchanged(object client.Object) {
	e.t.Helper()
	version, uid := object.GetResourceVersion(), object.GetUID()
	must.Succeed(e.t, e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object))
	if object.GetUID() != uid || object.GetResourceVersion() != version {
		e.t.Errorf("%T %s: got version %s of UID %s, want %s of %s", object, object.GetName(), object.GetResourceVersion(), object.GetUID(), version, uid)
	}
}

func TestEndpointSliceOfAnotherOwnerIsUnchanged(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator()
	other := &discoveryv1.EndpointSlice{
		ObjectMeta: e.metadata("ledger-leader-conclave"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	e.createAsUser(other)
	e.createSettledGroupWith(o, v1.ReasonServiceConflict)
	e.expectUnchanged(other)
	must.Succeed(t, e.client.Delete(t.Context(), other))
	e.elect("ledger", "ledger-1", 8)
	e.eventually("the Service points at the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-1") })
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
}

// createSettledGroupWith waits for a reason of the condition Ready, too.
func (e *env) createSettledGroupWith(o *operator, reason v1.Reason) {
	e.t.Helper()
	e.createSettledGroup(o)
	e.awaitCondition("ledger", v1.ConditionReady, reason)
}

// A backup restores the objects that the operator created, with the UID that the group had
// then. The operator replaces them without waiting for the garbage collector or a user.
func TestRestoredObjectsAreReplaced(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator()
	restored := func(name string) metav1.ObjectMeta {
		meta := e.metadata(name)
		meta.Labels = map[string]string{v1.LabelGroup: "ledger"}
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup", Name: "ledger", UID: "of-then",
			Controller: new(true), BlockOwnerDeletion: new(true),
		}}
		return meta
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: restored("ledger-leader-conclave"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
	slice.Labels[discoveryv1.LabelServiceName] = "ledger-leader"
	for _, object := range []client.Object{
		&corev1.Service{ObjectMeta: restored("ledger-leader"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}},
		slice,
	} {
		e.createAsUser(object)
	}
	e.createSettledGroupWith(o, v1.ReasonHealthy)
	e.eventually("the Service points at the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-2") })
	uid := e.group("ledger").UID
	for _, object := range []client.Object{
		&corev1.Service{ObjectMeta: e.metadata("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: e.metadata("ledger-leader-conclave")},
	} {
		must.Succeed(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		if owners := object.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != uid {
			t.Errorf("%T: got owners %+v, want the group %s", object, owners, uid)
		}
	}
}

// Others may own an object of the group, too, without being its controller: for example, so that it is deleted with an
// application. The operator keeps such owners when it writes the object, and doesn't write because of them.
func TestFurtherOwnersRemain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator()
	e.createSettledGroupWith(o, v1.ReasonHealthy)
	application := &corev1.ConfigMap{ObjectMeta: e.metadata("application")}
	e.createAsUser(application)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: application.Name, UID: application.UID}
	objects := []client.Object{
		&corev1.Service{ObjectMeta: e.metadata("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: e.metadata("ledger-leader-conclave")},
	}
	update := func(change func(client.Object)) { e.update(objects, change) }
	before := len(o.written())
	update(func(object client.Object) { object.SetOwnerReferences(append(object.GetOwnerReferences(), owner)) })
	e.awaitQuiet(o)
	expect.Lenf(t, kinds(o.written()[before:]), 0, "writes because of a further owner")
	before = len(o.written())
	update(func(object client.Object) {
		switch o := object.(type) {
		case *corev1.Service:
			o.Spec.Ports[0].Name = "other"
		case *discoveryv1.EndpointSlice:
			o.Endpoints = []discoveryv1.Endpoint{}
		}
	})
	e.eventually("the operator restores the objects", func() bool { return len(o.written()) >= before+len(objects) })
	e.awaitQuiet(o)
	update(func(client.Object) {})
	for _, object := range objects {
		if owners := object.GetOwnerReferences(); len(owners) != 2 || !slices.Contains(owners, owner) {
			t.Errorf("%T: got owners %+v, want the group and %s", object, owners, application.Name)
		}
	}
}
