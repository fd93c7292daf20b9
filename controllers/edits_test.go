package controllers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// awaitList waits until a list of the group that is newer than a version has settled.
func (e *env) awaitList(group string, before int64, members ...string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%s has settled on %v after version %d", group, members, before), func() bool {
		list := e.group(group).Status.Protocol.MemberList
		if list == nil || list.Version <= before || list.State != v1.ListSettled {
			return false
		}
		var names []string
		for _, m := range list.Members {
			names = append(names, m.Pod)
		}
		return slices.Equal(names, members)
	})
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

// A workload is scaled up, to zero, and up again.
func TestSelectorFollowsThePods(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	e.createGroup("web", withSelector("web"))
	e.awaitCondition("web", v1.ConditionReady, v1.ReasonNoMembers)
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		e.podWith(pod, []string{"web"}, withApp("web"))
	}
	e.eventually("the three pods are members", func() bool {
		list := e.group("web").Status.Protocol.MemberList
		return list != nil && len(list.Members) == 3 && list.State == v1.ListSettled
	})
	e.podWith("web-3", []string{"web"}, withApp("web"))
	e.eventually("the fourth pod is a member", func() bool {
		list := e.group("web").Status.Protocol.MemberList
		return len(list.Members) == 4 && list.State == v1.ListSettled
	})
	for _, pod := range []string{"web-0", "web-1", "web-2", "web-3"} {
		e.deletePod(pod)
	}
	e.awaitCondition("web", v1.ConditionReady, v1.ReasonNoMembers)
	e.podWith("web-5", []string{"web"}, withApp("web"))
	e.eventually("the new pod is the only member", func() bool {
		list := e.group("web").Status.Protocol.MemberList
		return list.State == v1.ListSettled && len(list.Members) == 1 && list.Members[0].Pod == "web-5"
	})
	e.elect("web", "web-5", 9)
	e.awaitCoordinator("web", "web-5", 9)
}

// The operator doesn't follow pods that haven't opted in. A pod without an agent that is created after its group is
// explained all the same. It doesn't count as present.
func TestPodsWithoutLabelAreNotCached(t *testing.T) {
	e := newEnv(t)
	e.startOperator(func(o *operator) {
		o.rejectsRead = func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/pods") &&
				!strings.Contains(r.URL.RawQuery, "labelSelector=conclave.dev%2Fagent%3Denabled")
		}
	})
	e.pod("ledger-1", "ledger")
	e.pod("ledger-2", "ledger")
	e.createGroup("ledger", withShortWaits, "ledger-0", "ledger-1", "ledger-2")
	e.awaitAdopted("ledger", 0, "ledger-1", "ledger-2")
	e.electAndAwait("ledger", "ledger-2", 7)
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonPodsMissing)
	e.podWithoutAgent("ledger-0", func(*corev1.Pod) {})
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonNoAgent)
}

// Pods that are older than the group don't name it. The status explains what they lack.
func TestPodsThatNameNoGroup(t *testing.T) {
	e := newEnv(t)
	e.podWithoutAgent("ledger-0", withApp("ledger"))
	e.podWithoutAgent("ledger-1", withApp("ledger"))
	e.podWithoutAgent("web-0", func(*corev1.Pod) {})
	e.startOperator()
	e.createGroup("ledger", withSelector("ledger"))
	const want = "The selector matches ledger-0 and ledger-1, but none is in the group"
	if ready := e.awaitCondition("ledger", v1.ConditionReady,
		v1.ReasonNoMembers); !strings.HasPrefix(ready.Message, want) {
		t.Errorf("got message %q, want the prefix %q", ready.Message, want)
	}
	e.podWith("ledger-2", []string{"ledger"}, withApp("ledger"))
	e.awaitAdopted("ledger", 0, "ledger-2")
}

func TestServiceOfAnotherOwnerIsUnchanged(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "ledger-leader"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}
	must.Succeed(t, e.client.Create(t.Context(), other))
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	e.startLedger(withService, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonServiceConflict)
	var now corev1.Service
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(other), &now); err != nil ||
		now.ResourceVersion != other.ResourceVersion {
		t.Errorf("got version %s of the other owner's Service, want %s: %v", now.ResourceVersion, other.ResourceVersion, err)
	}
	if e.endpoint("ledger-leader") != "" {
		t.Error("got an EndpointSlice for the other owner's Service, want none")
	}
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Service.Name = "ledger-own" })
	e.eventually("the Service ledger-own points at the coordinator",
		func() bool { return e.endpoint("ledger-own") == e.ip("ledger-2") })
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
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
