package controllers_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
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
	e.eventually("the agents have left the deleted group", func() bool { return !e.inGroup("p-0", "ledger") })
}
