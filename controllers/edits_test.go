package controllers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// awaitCondition waits for a condition with a reason.
func (s *stage) awaitCondition(group string, of v1.ConditionType, reason v1.Reason) *metav1.Condition {
	s.t.Helper()
	var found *metav1.Condition
	s.await(string(of)+" is "+string(reason), func() bool {
		found = meta.FindStatusCondition(s.group(group).Status.Conditions, string(of))
		return found != nil && found.Reason == string(reason)
	})
	return found
}

func (s *stage) awaitList(group string, version int64, members ...string) {
	s.t.Helper()
	s.await("the list is as wanted, and has settled", func() bool {
		list := s.group(group).Status.MemberList
		if list == nil || list.Version < version || list.State != v1.ListSettled {
			return false
		}
		var names []string
		for _, m := range list.Members {
			names = append(names, m.Pod)
		}
		return slices.Equal(names, members)
	})
}

// in reports whether a pod's agent takes part in a group.
func (s *stage) in(pod, group string) bool {
	s.mu.Lock()
	agent := s.agents[pod]
	s.mu.Unlock()
	_, in := agent.Report(group)
	return in
}

func (s *stage) document(group string) control.Document {
	s.t.Helper()
	var published corev1.ConfigMap
	if err := s.client.Get(s.t.Context(), s.key(control.ConfigMapName(group)), &published); err != nil {
		s.t.Fatal(err)
	}
	var document control.Document
	if err := yaml.Unmarshal([]byte(published.Data[control.DocumentKey]), &document); err != nil {
		s.t.Fatal(err)
	}
	return document
}

func labelled(app string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": app} }
}

func selecting(app string) func(*v1.ElectionGroup) {
	return func(group *v1.ElectionGroup) {
		brief(group)
		group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": v1.LabelValue(app)}}
		group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	}
}

// A Deployment is scaled up and down, to nothing and back.
func TestSelectorFollowsThePods(t *testing.T) {
	s := newStage(t)
	s.operator()
	s.declared("web", selecting("web"))
	s.awaitCondition("web", v1.Ready, v1.ReasonNoMembers)
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		s.podLike(pod, []string{"web"}, labelled("web"))
	}
	s.await("the pods are members", func() bool {
		list := s.group("web").Status.MemberList
		return list != nil && len(list.Members) == 3 && list.State == v1.ListSettled
	})
	s.podLike("web-3", []string{"web"}, labelled("web"))
	s.await("the fourth is too", func() bool {
		list := s.group("web").Status.MemberList
		return len(list.Members) == 4 && list.State == v1.ListSettled
	})
	for _, pod := range []string{"web-0", "web-1", "web-2", "web-3"} {
		s.deletePod(pod)
	}
	s.awaitCondition("web", v1.Ready, v1.ReasonNoMembers)
	s.podLike("web-5", []string{"web"}, labelled("web"))
	s.await("whoever comes back is a member", func() bool {
		list := s.group("web").Status.MemberList
		return list.State == v1.ListSettled && len(list.Members) == 1 && list.Members[0].Pod == "web-5"
	})
	s.elect("web", "web-5", 9)
	s.awaitCoordinator("web", "web-5", 9)
}

func TestMembersChange(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	for _, pod := range []string{"p-0", "p-1", "p-2", "p-3"} {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", brief, "p-0", "p-1", "p-2")
	s.awaitAdopted("ledger", 1, "p-0", "p-1", "p-2")
	for _, edit := range [][]v1.Member{
		// added, renumbered, swapped, reordered and removed, all replaced, and back
		{{Pod: "p-0", Priority: 10}, {Pod: "p-1", Priority: 20}, {Pod: "p-2", Priority: 30}, {Pod: "p-3", Priority: 40}},
		{{Pod: "p-0", Priority: 1}, {Pod: "p-1", Priority: 2}, {Pod: "p-2", Priority: 3}, {Pod: "p-3", Priority: 0}},
		{{Pod: "p-0", Priority: 2}, {Pod: "p-1", Priority: 1}, {Pod: "p-2", Priority: 3}, {Pod: "p-3", Priority: 0}},
		{{Pod: "p-2", Priority: 2}, {Pod: "p-0", Priority: 1}},
		{{Pod: "p-3", Priority: 2}, {Pod: "p-1", Priority: 1}},
		{{Pod: "p-0", Priority: 10}, {Pod: "p-1", Priority: 20}, {Pod: "p-2", Priority: 30}},
	} {
		version := s.group("ledger").Status.MemberList.Version
		s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = edit })
		var names []string
		for _, m := range edit {
			names = append(names, m.Pod)
		}
		s.awaitList("ledger", version+1, names...)
		s.awaitAdopted("ledger", uint32(version+1), names...)
		s.await("those who are no members have left", func() bool {
			for _, pod := range []string{"p-0", "p-1", "p-2", "p-3"} {
				if !slices.Contains(names, pod) && s.in(pod, "ledger") {
					return false
				}
			}
			return true
		})
	}
	s.awaitQuiet(a)
	for pod, want := range map[string]int{"p-0": 1, "p-1": 1, "p-2": 1, "p-3": 2} {
		if got := left(s.agents[pod]); got != want {
			t.Errorf("%s had to leave %d times, and was told so %d times", pod, want, got)
		}
	}
}

func left(agent *fakeagent.Agent) int {
	count := 0
	for _, call := range agent.Calls() {
		if call.Method == http.MethodDelete {
			count++
		}
	}
	return count
}

func TestSettingsChangeUnderWay(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	before := s.document("ledger")
	s.elect("ledger", "", 7) // an election begins
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	s.await("the agents are told", func() bool {
		report, _ := s.agents["ledger-0"].Report("ledger")
		return report.Generation == s.group("ledger").Generation
	})
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	after := s.document("ledger")
	if after.Group.Algorithm != "Bully" || after.Revision <= before.Revision || after.Group.Version != before.Group.Version {
		t.Errorf("the algorithm alone changes, in a new revision: before %+v, after %+v", before, after)
	}
	s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
}

func TestTwoGroupsOverTheSamePods(t *testing.T) {
	s := newStage(t)
	s.operator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger", "audit")
	}
	s.declared("ledger", brief, pods...)
	s.declared("audit", brief, "p-2", "p-1", "p-0")
	s.awaitAdopted("ledger", 1, pods...)
	s.awaitAdopted("audit", 1, pods...)
	s.elect("ledger", "p-2", 7)
	s.elect("audit", "p-0", 9)
	s.awaitCoordinator("ledger", "p-2", 7)
	s.awaitCoordinator("audit", "p-0", 9)
	s.awaitRole("p-2", "ledger", v1.RoleCoordinator)
	s.awaitRole("p-2", "audit", v1.RoleFollower)
	s.awaitRole("p-0", "audit", v1.RoleCoordinator)
	if err := s.client.Delete(t.Context(), s.group("audit")); err != nil {
		t.Fatal(err)
	}
	s.awaitRole("p-0", "audit", "")
	s.await("the agents have left it", func() bool { return !s.in("p-0", "audit") && !s.in("p-1", "audit") && !s.in("p-2", "audit") })
	if s.role("p-2", "ledger") != v1.RoleCoordinator || !s.in("p-2", "ledger") {
		t.Error("the other group is none of that one's business")
	}
}

func TestPodsWithoutAgent(t *testing.T) {
	s := newStage(t)
	s.operator()
	s.barePod("ledger-0", func(*corev1.Pod) {})
	s.pod("ledger-1", "ledger")
	s.pod("ledger-2", "ledger")
	s.declared("ledger", brief, "ledger-0", "ledger-1", "ledger-2")
	s.awaitAdopted("ledger", 1, "ledger-1", "ledger-2")
	s.elect("ledger", "ledger-2", 7)
	s.awaitCoordinator("ledger", "ledger-2", 7)
	s.awaitCondition("ledger", v1.AgentsConnected, v1.ReasonNoAgent)
}

// Pods that were there before anybody thought of a group name none. Who makes one for
// them is told what they need.
func TestPodsThatNameNoGroup(t *testing.T) {
	s := newStage(t)
	s.barePod("ledger-0", labelled("ledger"))
	s.barePod("ledger-1", labelled("ledger"))
	s.barePod("web-0", func(*corev1.Pod) {})
	s.operator()
	s.declared("ledger", selecting("ledger"))
	const want = "the selector matches ledger-0 and ledger-1, but no pod names the group"
	if ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonNoMembers); !strings.HasPrefix(ready.Message, want) {
		t.Errorf("the condition doesn't say that %s, but: %s", want, ready.Message)
	}
	s.podLike("ledger-2", []string{"ledger"}, labelled("ledger"))
	s.awaitAdopted("ledger", 1, "ledger-2")
}

func TestForeignServiceIsLeftAlone(t *testing.T) {
	s := newStage(t)
	s.operator()
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ledger-leader"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}
	if err := s.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", withService, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	s.elect("ledger", "ledger-2", 7)
	s.awaitCondition("ledger", v1.Ready, v1.ReasonServiceConflict)
	var now corev1.Service
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), &now); err != nil || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("a Service of somebody else's isn't touched: %v", err)
	}
	if s.endpoint("ledger-leader") != "" {
		t.Error("a Service of somebody else's isn't given an address")
	}
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Service.Name = "ledger-own" })
	s.await("one of its own name leads there", func() bool { return s.endpoint("ledger-own") == s.ip("ledger-2") })
	s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
}

// A Service with a selector leads to all the pods that this finds. Whoever hands one
// over, or adds a selector later, is told so, and nothing else befalls it.
func TestServiceThatSelectsIsLeftAlone(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	handed := &corev1.Service{ObjectMeta: s.named("ledger-leader"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "ledger"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	handed.Labels = map[string]string{v1.LabelGroup: "ledger"}
	s.make(handed)
	s.settledButFor(a, v1.ReasonServiceConflict)
	s.expectUntouched(handed)
	if s.endpoint("ledger-leader") != "" {
		t.Error("it is given an address")
	}
	if err := s.client.Delete(t.Context(), handed); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
	s.await("one without a selector leads there", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-2") })

	made := &corev1.Service{}
	if err := s.client.Get(t.Context(), s.key("ledger-leader"), made); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(made.DeepCopy())
	made.Spec.Selector = map[string]string{"app": "ledger"}
	if err := s.client.Patch(t.Context(), made, patch); err != nil {
		t.Fatal(err)
	}
	s.awaitCondition("ledger", v1.Ready, v1.ReasonServiceConflict)
	s.elect("ledger", "ledger-1", 8)
	s.await("its slice doesn't lead to a coordinator of before", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
	s.awaitQuiet(a)
	s.expectUntouched(made)
}

// A Service that is handed over gets the group's ports in the place of its own, and
// is written no more then.
func TestServiceIsHandedOver(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	handed := &corev1.Service{ObjectMeta: s.named("ledger-leader"), Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "web", Port: 8080}, {Name: "admin", Port: 9090}},
	}}
	handed.Labels = map[string]string{v1.LabelGroup: "ledger"}
	handed.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "of-somebody", UID: "none"}}
	s.make(handed)
	s.settledButFor(a, v1.ReasonHealthy)
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(handed), handed); err != nil {
		t.Fatal(err)
	}
	if ports := handed.Spec.Ports; len(ports) != 1 || ports[0].Name != "" || ports[0].Port != 8080 {
		t.Errorf("it has the ports %+v, and should have the group's alone", ports)
	}
	before := len(a.written())
	s.elect("ledger", "ledger-1", 8)
	s.await("it leads there", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
	s.awaitQuiet(a)
	if writes := kinds(a.written()[before:]); slices.Contains(writes, "PATCH services") {
		t.Errorf("it is as it should be, and is written again: %v", writes)
	}
	s.expectUntouched(handed)
}
