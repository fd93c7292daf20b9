package controllers_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func inStrictMode(group *v1.ElectionGroup) {
	withShortWaits(group)
	group.Spec.Safety.Mode = v1.Strict
}

// createStrictGroup creates the group ledger in Strict mode with five pods, and returns
// the pods when the operator holds them.
func (e *env) createStrictGroup() map[string]*corev1.Pod {
	e.t.Helper()
	names := []string{"p-0", "p-1", "p-2", "p-3", "p-4"}
	for _, name := range names {
		e.podWith(name, []string{"ledger"}, onNode("node-of-"+name))
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

func (e *env) awaitNoPod(name string) {
	e.t.Helper()
	e.eventually("there is no pod "+name, func() bool { return e.findPod(name) == nil })
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
