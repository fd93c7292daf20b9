package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// service returns a Service once it exists.
func (e *env) service(name string) *corev1.Service {
	e.t.Helper()
	service := &corev1.Service{}
	e.eventually("the Service exists", func() bool { return e.client.Get(e.t.Context(), e.key(name), service) == nil })
	return service
}

func (e *env) awaitEndpointSlice(name, what string, holds func(*discoveryv1.EndpointSlice) bool) {
	e.t.Helper()
	e.eventually(what, func() bool {
		slice := &discoveryv1.EndpointSlice{}
		return e.client.Get(e.t.Context(), e.key(name), slice) == nil && holds(slice)
	})
}

func TestOptionsOfService(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.podWith(pod, []string{"ledger"}, func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "grpc", ContainerPort: 9090}}
		})
	}
	e.createGroup("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Service = &v1.CoordinatorService{
			Name: "front", Type: v1.Headless,
			Ports: []v1.ServicePort{{Port: 80, TargetPort: new(intstr.FromString("grpc")), AppProtocol: "kubernetes.io/h2c"}},
		}
	}, pods...)
	e.awaitAdopted("ledger", 0, pods...)
	e.elect("ledger", "ledger-2", 7)
	headless := e.service("front")
	if got := headless.Spec; got.ClusterIP != corev1.ClusterIPNone || got.Ports[0].TargetPort.StrVal != "grpc" ||
		*got.Ports[0].AppProtocol != "kubernetes.io/h2c" {
		t.Errorf("got Service %+v, want a headless one for grpc over h2c", got)
	}
	const slice = "front-conclave"
	e.awaitEndpointSlice(slice, "the port is that of the container", func(s *discoveryv1.EndpointSlice) bool {
		return len(s.Ports) == 1 && *s.Ports[0].Port == 9090 && len(s.Endpoints) == 1 && !*s.Endpoints[0].Conditions.Ready
	})
	pod := e.findPod("ledger-2")
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must.Succeed(t, e.client.Status().Patch(t.Context(), pod, patch))
	e.awaitEndpointSlice(slice, "the endpoint is ready",
		func(s *discoveryv1.EndpointSlice) bool { return *s.Endpoints[0].Conditions.Ready })

	e.edit("ledger", func(group *v1.ElectionGroup) {
		s := group.Spec.Service
		s.Type, s.Routing, s.Ports[0].TargetPort = v1.ClusterIP, v1.RouteAlways, new(intstr.FromString("http"))
	})
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonPortMissing)
	e.eventually("a Service with a cluster IP replaces the headless one", func() bool {
		s := e.service("front")
		return s.UID != headless.UID && s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.PublishNotReadyAddresses
	})
	e.awaitEndpointSlice(slice, "the endpoint is ready in any case, and has no port",
		func(s *discoveryv1.EndpointSlice) bool {
			return len(s.Ports) == 0 && *s.Endpoints[0].Conditions.Ready
		})
}

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
		e.t.Errorf("%T %s: got version %s of UID %s, want %s of %s", object, object.GetName(), object.GetResourceVersion(),
			object.GetUID(), version, uid)
	}
}

func TestEndpointSliceOfAnotherOwnerIsUnchanged(t *testing.T) {
	e, o := newOperatedEnv(t)
	other := &discoveryv1.EndpointSlice{
		ObjectMeta: e.metadata("ledger-leader-conclave"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{},
	}
	e.createAsUser(other)
	e.createSettledGroupWith(o, v1.ReasonServiceConflict)
	e.expectUnchanged(other)
	must.Succeed(t, e.client.Delete(t.Context(), other))
	e.elect("ledger", "ledger-1", 8)
	e.awaitRoute("ledger-1")
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
	e, o := newOperatedEnv(t)
	restored := func(name string) metav1.ObjectMeta {
		meta := e.metadata(name)
		meta.Labels = map[string]string{v1.LabelGroup: "ledger"}
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup", Name: "ledger", UID: "of-then",
			Controller: new(true), BlockOwnerDeletion: new(true),
		}}
		return meta
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: restored(
		"ledger-leader-conclave"), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
	slice.Labels[discoveryv1.LabelServiceName] = "ledger-leader"
	for _, object := range []client.Object{
		&corev1.Service{
			ObjectMeta: restored("ledger-leader"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}},
		},
		slice,
	} {
		e.createAsUser(object)
	}
	e.createSettledGroupWith(o, v1.ReasonHealthy)
	e.awaitRoute("ledger-2")
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
