package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// make makes an object as somebody else does.
func (s *stage) make(object client.Object) {
	s.t.Helper()
	if err := s.client.Create(s.t.Context(), object, client.FieldOwner("kubectl-create")); err != nil {
		s.t.Fatal(err)
	}
}

// expectUntouched wants an object to be as it was.
func (s *stage) expectUntouched(object client.Object) {
	s.t.Helper()
	version, uid := object.GetResourceVersion(), object.GetUID()
	if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		s.t.Fatal(err)
	}
	if object.GetUID() != uid || object.GetResourceVersion() != version {
		s.t.Errorf("%T %s is somebody else's, and isn't as it was: %+v", object, object.GetName(), object)
	}
}

func (s *stage) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

func TestForeignConfigMapIsLeftAlone(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	foreign := &corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger")), Data: map[string]string{"colour": "blue"}}
	s.make(foreign)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", brief, pods...)
	s.awaitCondition("ledger", v1.Ready, v1.ReasonConfigMapConflict)
	s.awaitQuiet(a)
	s.expectUntouched(foreign)
	if s.in("ledger-0", "ledger") {
		t.Error("the group has begun, with a list that its agents can't mount")
	}
	patch := client.MergeFrom(foreign.DeepCopy())
	foreign.Labels = map[string]string{v1.LabelGroup: "ledger"} // Its owner hands it over.
	if err := s.client.Patch(t.Context(), foreign, patch); err != nil {
		t.Fatal(err)
	}
	s.awaitAdopted("ledger", 1, pods...)
	if document := s.document("ledger"); document.Group.Version != 1 {
		t.Errorf("what was handed over has %+v", document)
	}
}

// Somebody takes the place of the ConfigMap of a group that runs, while no operator does.
func TestForeignConfigMapInTheMiddle(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	a.stop()
	ours := &corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))}
	if err := s.client.Delete(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	foreign := &corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))}
	s.make(foreign)
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[:2] })
	a = s.operator()
	s.awaitCondition("ledger", v1.Ready, v1.ReasonConfigMapConflict)
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitQuiet(a)
	s.expectUntouched(foreign)
	if list := s.group("ledger").Status.MemberList; list.Version != 1 || len(list.Members) != 3 {
		t.Errorf("a list is in force that agents can't mount: %+v", list)
	}
}

func TestForeignEndpointSliceIsLeftAlone(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	foreign := &discoveryv1.EndpointSlice{
		ObjectMeta: s.named("ledger-leader-conclave"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	s.make(foreign)
	s.settledButFor(a, v1.ReasonServiceConflict)
	s.expectUntouched(foreign)
	if err := s.client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.elect("ledger", "ledger-1", 8)
	s.await("the Service leads there", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
	s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
}

func (s *stage) settledButFor(a *actor, reason v1.Reason) {
	s.t.Helper()
	s.settled(a)
	s.awaitCondition("ledger", v1.Ready, reason)
}

// A backup brings back what the operator made for a group, with the UID that the
// group had then. Nobody waits for the garbage collector, or for a person.
func TestWhatABackupBringsBackIsTakenOver(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	restored := func(name string) metav1.ObjectMeta {
		meta := s.named(name)
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
		&corev1.ConfigMap{ObjectMeta: restored(control.ConfigMapName("ledger")), Data: map[string]string{control.DocumentKey: "uid: of-then"}},
		&corev1.Service{ObjectMeta: restored("ledger-leader"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}},
		slice,
	} {
		s.make(object)
	}
	s.settledButFor(a, v1.ReasonHealthy)
	s.await("the Service leads there", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-2") })
	uid := s.group("ledger").UID
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))},
		&corev1.Service{ObjectMeta: s.named("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: s.named("ledger-leader-conclave")},
	} {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		if owners := object.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != uid {
			t.Errorf("%T belongs to %+v, and the group is %s", object, owners, uid)
		}
	}
}
