package controllers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// awaitCondition waits for a condition with a reason.
func (e *env) awaitCondition(group string, of v1.ConditionType, reason v1.Reason) *metav1.Condition {
	e.t.Helper()
	var found *metav1.Condition
	e.eventually(string(of)+" is "+string(reason), func() bool {
		found = meta.FindStatusCondition(e.group(group).Status.Conditions, string(of))
		return found != nil && found.Reason == string(reason)
	})
	return found
}

// inGroup reports whether a pod's agent is in a group.
func (e *env) inGroup(pod, group string) bool {
	e.mu.Lock()
	agent := e.agents[pod]
	e.mu.Unlock()
	_, in := agent.Report(group)
	return in
}

func withApp(app string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "app", app) }
}

func withSelector(app string) func(*v1.ElectionGroup) {
	return func(group *v1.ElectionGroup) {
		withShortWaits(group)
		group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": v1.LabelValue(app)}}
		group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	}
}

// The operator reads no pods that haven't opted in: they don't count as present.
func TestPodsWithoutLabelAreNotCached(t *testing.T) {
	e := newEnv(t)
	e.startOperator(func(o *operator) {
		o.rejectsRead = func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/pods") &&
				!strings.Contains(r.URL.RawQuery, "labelSelector=conclave.dev%2Fagent%3Denabled")
		}
	})
	e.podWithoutAgent("ledger-0", func(*corev1.Pod) {})
	e.pod("ledger-1", "ledger")
	e.pod("ledger-2", "ledger")
	e.createGroup("ledger", withShortWaits, "ledger-0", "ledger-1", "ledger-2")
	e.awaitAdopted("ledger", 0, "ledger-1", "ledger-2")
	e.electAndAwait("ledger", "ledger-2", 7)
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonPodsMissing)
}

// A Service with a selector points at all pods that the selector matches. If a user hands one over, or adds a selector
// later, the status reports it, and the operator leaves the Service unchanged.
func TestServiceWithSelectorIsUnchanged(t *testing.T) {
	e, o := newOperatedEnv(t)
	service := &corev1.Service{ObjectMeta: e.metadata("ledger-leader"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "ledger"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	service.Labels = map[string]string{v1.LabelGroup: "ledger"}
	e.createAsUser(service)
	e.createSettledGroupWith(o, v1.ReasonServiceConflict)
	e.expectUnchanged(service)
	if e.endpoint("ledger-leader") != "" {
		t.Error("got an EndpointSlice for a Service with a selector, want none")
	}
	must.Succeed(t, e.client.Delete(t.Context(), service))
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
	e.awaitRoute("ledger-2")

	created := &corev1.Service{}
	must.Succeed(t, e.client.Get(t.Context(), e.key("ledger-leader"), created))
	patch := client.MergeFrom(created.DeepCopy())
	created.Spec.Selector = map[string]string{"app": "ledger"}
	must.Succeed(t, e.client.Patch(t.Context(), created, patch))
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonServiceConflict)
	e.elect("ledger", "ledger-1", 8)
	e.awaitRoute("ledger-1")
	e.awaitQuiet(o)
	e.expectUnchanged(created)
}

// A Service that a user hands over gets the group's ports instead of its own, once. A load balancer isn't replaced
// because the group has another type of Service.
func TestServiceIsHandedOver(t *testing.T) {
	e, o := newOperatedEnv(t)
	service := &corev1.Service{ObjectMeta: e.metadata("ledger-leader"), Spec: corev1.ServiceSpec{
		Type:  corev1.ServiceTypeLoadBalancer,
		Ports: []corev1.ServicePort{{Name: "web", Port: 8080}, {Name: "admin", Port: 9090}},
	}}
	service.Labels = map[string]string{v1.LabelGroup: "ledger"}
	service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "none"}}
	e.createAsUser(service)
	e.createSettledGroupWith(o, v1.ReasonHealthy)
	must.Succeed(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(service), service))
	if ports := service.Spec.Ports; len(ports) != 1 || ports[0].Name != "" || ports[0].Port != 8080 {
		t.Errorf("got ports %+v, want the group's only", ports)
	}
	before := len(o.written())
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Service.Type = v1.Headless })
	e.elect("ledger", "ledger-1", 8)
	e.awaitRoute("ledger-1")
	e.awaitQuiet(o)
	if writes := kinds(o.written()[before:]); slices.Contains(writes, "PATCH services") {
		t.Errorf("got writes %v, want none of the Service", writes)
	}
	e.expectUnchanged(service)
}
