package controllers_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

func inStrictMode(group *v1.ElectionGroup) {
	withShortWaits(group)
	group.Spec.Safety.Mode = v1.Strict
}

// scheduledPod creates a running pod with a fake agent, on a node.
func (e *env) scheduledPod(name, node string) *fakeagent.Agent {
	e.t.Helper()
	return e.podWith(name, []string{"ledger"}, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
}

// createStrictGroup creates the group ledger in Strict mode with five pods, and returns
// the pods when the operator holds them.
func (e *env) createStrictGroup() map[string]*corev1.Pod {
	e.t.Helper()
	names := []string{"p-0", "p-1", "p-2", "p-3", "p-4"}
	for _, name := range names {
		e.scheduledPod(name, "node-of-"+name)
	}
	e.createGroup("ledger", inStrictMode, names...)
	pods := map[string]*corev1.Pod{}
	for _, name := range names {
		e.awaitHeld(name, true)
		pods[name] = e.findPod(name)
	}
	e.awaitAdopted("ledger", 0, names...)
	return pods
}

// findPod returns a pod, or nil if there is none.
func (e *env) findPod(name string) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{}
	err := e.client.Get(e.t.Context(), e.key(name), pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(e.t, err)
	return pod
}

func (e *env) awaitHeld(name string, want bool) {
	e.t.Helper()
	what := name + " has no finalizer"
	if want {
		what = name + " has a finalizer"
	}
	e.eventually(what,
		func() bool { return slices.Contains(e.findPod(name).Finalizers, v1.StopFinalizer("ledger")) == want })
}

// collectGarbage deletes a pod as Kubernetes' garbage collector does when the pod's node
// was removed: it knows nothing about the containers.
func (e *env) collectGarbage(name string) {
	e.t.Helper()
	e.changePodStatus(name, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed })
	e.deletePod(name)
}

func (e *env) changePodStatus(name string, change func(*corev1.PodStatus)) {
	e.t.Helper()
	pod := e.findPod(name)
	patch := client.MergeFrom(pod.DeepCopy())
	change(&pod.Status)
	must.Succeed(e.t, e.client.Status().Patch(e.t.Context(), pod, patch))
}

func (e *env) awaitNoPod(name string) {
	e.t.Helper()
	e.eventually("there is no pod "+name, func() bool { return e.findPod(name) == nil })
}

// reportStopped reports as a kubelet does that all containers of a pod have ended.
func (e *env) reportStopped(name string) {
	e.t.Helper()
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	e.changePodStatus(name, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1.AgentContainer, State: ended}}
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: ended}}
	})
}

// Three of five nodes are cut off and their pods are force-deleted. If they ran on, they would be a majority of the
// first list. So the second list must not settle until it is known that one of them has stopped.
func TestListDoesNotSettleWithoutPodsThatMayRun(t *testing.T) {
	need.Complete(t)
	e, o := newOperatedEnv(t)
	pods := e.createStrictGroup()
	for _, name := range []string{"p-2", "p-3", "p-4"} {
		e.collectGarbage(name)
	}
	version := e.version("ledger")
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[:2] })
	e.awaitAdopted("ledger", version, "p-0", "p-1")
	e.eventually("the status asks for a confirmation", func() bool {
		ready := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady))
		return ready != nil && ready.Reason == string(v1.ReasonStopUnconfirmed) &&
			strings.HasPrefix(ready.Message, "p-2, p-3 and p-4 were deleted, but may still run") &&
			strings.HasSuffix(ready.Message,
				"confirm-stopped=p-2/"+string(pods["p-2"].UID)+",p-3/"+string(pods["p-3"].UID)+",p-4/"+string(pods["p-4"].UID))
	})
	e.awaitQuiet(o)
	if list := e.group("ledger").Status.Protocol.MemberList; list.State != v1.ListAdopting || len(list.Departed) > 0 {
		t.Fatalf("got list %+v, want it Adopting, with nobody departed", list)
	}

	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Annotations = map[string]string{v1.AnnotationConfirmStopped: "p-2/" + string(pods["p-2"].UID)}
	})
	e.eventually("the list has settled",
		func() bool { return e.group("ledger").Status.Protocol.MemberList.State == v1.ListSettled })
	e.awaitNoPod("p-2")
	list := e.group("ledger").Status.Protocol.MemberList
	expect.EqualSlicesf(t, list.Departed, []string{"p-2"}, "departed")

	e.reportStopped("p-3")
	e.awaitNoPod("p-3")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-p-4"}}
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	must.Succeed(t, e.client.Create(t.Context(), node))
	t.Cleanup(func() { _ = e.client.Delete(t.Context(), node) })
	e.awaitNoPod("p-4")
}

// A pod that stops is deleted when its kubelet has reported that, and a pod of the same name takes its place.
func TestStoppedPodOfStrictGroupIsReplaced(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	before := e.createStrictGroup()["p-4"]
	must.Succeed(t, e.client.Delete(t.Context(), e.findPod("p-4"), client.GracePeriodSeconds(1)))
	must.Succeed(t, e.agents["p-4"].Stop())
	e.reportStopped("p-4")
	e.deletePodIfAny("p-4") // As the kubelet does after its report.
	e.awaitNoPod("p-4")
	e.scheduledPod("p-4", "node")
	e.awaitHeld("p-4", true)
	if after := e.findPod("p-4"); after.UID == before.UID {
		t.Errorf("got the pod %s again, want another one", after.UID)
	}
	e.awaitAdopted("ledger", 0, "p-4")
}

// deletePodIfAny deletes a pod without a grace period, if there is one.
func (e *env) deletePodIfAny(name string) {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: e.metadata(name)}
	if err := e.client.Delete(e.t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
}

// Pods are held only as long as their group is in Strict mode, also if it is deleted while no operator runs.
func TestPodsAreReleasedWithTheGroup(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createStrictGroup()
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Majority })
	e.awaitHeld("p-0", false)
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Safety.Mode = v1.Strict })
	e.awaitHeld("p-0", true)
	e.awaitHeld("p-4", true)
	e.deletePod("p-4")
	o.stop()
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	e.startOperator()
	e.awaitNoPod("p-4")
	e.awaitHeld("p-0", false)
}

// expectPresentList checks that the first list of three members is in force, with its coordinator.
func (e *env) expectPresentList() {
	e.t.Helper()
	status, published := e.group("ledger").Status, e.document("ledger").Group
	if list := status.Protocol.MemberList; list.Previous != nil || len(list.Members) != 3 || published.Previous != nil {
		e.t.Fatalf("got list %+v and document %+v, want those before the change", list, published)
	}
	if status.Coordinator == nil || status.Coordinator.Pod != "ledger-2" {
		e.t.Fatalf("got coordinator %+v, want ledger-2", status.Coordinator)
	}
}

// Three members are added whose pods don't exist. The list waits for a majority, also after a
// restart of the operator, whether or not that reaches the agents.
func TestListWaitsForItsMembers(t *testing.T) {
	need.Complete(t)
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	members := []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3", "ledger-4", "ledger-5"}
	e.edit("ledger", func(group *v1.ElectionGroup) {
		for i, pod := range members[3:] {
			group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(i + 1)})
		}
	})
	const want = "3 of 6 wanted members are connected, and a coordinator needs 4, so the present list remains: " +
		"make sure that ledger-3, ledger-4 and ledger-5 run, or correct spec.members"
	for _, of := range []v1.ConditionType{v1.ConditionReady, v1.ConditionProgressing, v1.ConditionDegraded} {
		expect.Equalf(t, e.awaitCondition("ledger", of, v1.ReasonWaitingForMembers).Message, want, "%s: message", of)
	}
	e.awaitQuiet(first)
	e.expectPresentList()
	expect.Equalf(t, meta.IsStatusConditionTrue(e.group("ledger").Status.Conditions, string(v1.ConditionAvailable)), true,
		"Available, because the coordinator remains")

	first.stop()
	for _, pod := range members[:3] {
		must.Succeed(t, e.agents[pod].Stop())
	}
	second := e.startOperator()
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonUnreachable)
	e.awaitQuiet(second)
	e.expectPresentList()
	for _, pod := range members[:3] {
		must.Succeed(t, e.agents[pod].Run(t.Context()))
	}
	e.eventually("the operator is connected to the present members", func() bool {
		c := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady))
		return c.Message == want
	})
	e.awaitQuiet(second)
	e.expectPresentList()

	version := e.version("ledger")
	e.pod("ledger-3", "ledger")
	e.awaitAdopted("ledger", version, members[:4]...)
	e.awaitList("ledger", version, members...)
	if c := e.group("ledger").Status.Coordinator; c == nil || c.Pod != "ledger-2" {
		t.Errorf("got coordinator %+v, want ledger-2", c)
	}
	e.awaitQuiet(second)
	if c := meta.FindStatusCondition(e.group("ledger").Status.Conditions,
		string(v1.ConditionReady)); c.Reason == string(v1.ReasonWaitingForMembers) {
		t.Errorf("got condition %+v, want another reason", c)
	}
}

// A pod that no list has yet is connected, because spec.members selects it: its record is how
// its agent learns of the group. So a list never waits for what only its publication would bring.
func TestPodOfWaitingListIsRecorded(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	e.selectedPod("ledger-3", "", func(*corev1.Pod) {})
	e.edit("ledger", func(group *v1.ElectionGroup) {
		for i, pod := range []string{"ledger-3", "ledger-4", "ledger-5"} {
			group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(i + 1)})
		}
	})
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonWaitingForMembers)
	e.awaitRecord("ledger-3", "ledger")
	e.expectPresentList()
}
