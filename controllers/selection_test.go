package controllers_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// selectedPod creates a pod as the webhook leaves it: with a record of the groups that select
// it, and an agent, which doesn't run.
func (e *env) selectedPod(name, recorded string, change func(*corev1.Pod)) {
	e.t.Helper()
	e.podWithoutAgent(name, func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(
			corev1.ContainerRestartPolicyAlways)}}
		pod.Labels = map[string]string{v1.LabelAgent: v1.AgentEnabled}
		pod.Annotations = map[string]string{v1.AnnotationSelectedBy: recorded, "example.org/other": "value"}
		change(pod)
	})
}

// awaitRecord waits until a pod has a record of these groups, and no other change.
func (e *env) awaitRecord(name, groups string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("the record of %s is %q", name, groups), func() bool {
		return e.findPod(name).Annotations[v1.AnnotationSelectedBy] == groups
	})
	if got := e.findPod(name).Annotations; len(got) != 2 || got["example.org/other"] != "value" {
		e.t.Errorf("got annotations %v, want only the record changed", got)
	}
}

// TestRecordOfSelectingGroups: groups are created and deleted, and labels change, while the pods run. A pod whose
// author named its groups, and one without an agent, get no record.
func TestRecordOfSelectingGroups(t *testing.T) {
	e := newEnv(t)
	e.podWith("named", []string{"audit"}, withApp("ledger"))
	e.podWith("both", []string{"audit"}, func(pod *corev1.Pod) {
		withApp("ledger")(pod)
		pod.Annotations[v1.AnnotationSelectedBy] = "mail"
	})
	e.selectedPod("without", "", func(pod *corev1.Pod) {
		withApp("ledger")(pod)
		pod.Spec.InitContainers = nil
	})
	e.createGroup("first", nil, "ledger-0")
	e.selectedPod("ledger-0", "", withApp("ledger"))
	e.selectedPod("ledger-1", "gone,second", withApp("ledger"))
	e.startOperator()
	// Groups that were created while no operator ran.
	e.awaitRecord("ledger-0", "first")
	e.awaitRecord("ledger-1", "")

	e.createGroup("selector", withSelector("ledger"))
	e.awaitRecord("ledger-0", "first,selector")
	e.awaitRecord("ledger-1", "selector")

	e.selectedPod("ledger-2", "", withApp("ledger")) // The webhook didn't know the group yet.
	e.awaitRecord("ledger-2", "selector")

	e.update([]client.Object{e.findPod("ledger-1")}, func(pod client.Object) { pod.GetLabels()["app"] = "other" })
	e.awaitRecord("ledger-1", "")

	e.edit("first", func(group *v1.ElectionGroup) {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: "ledger-1", Priority: 20})
	})
	e.awaitRecord("ledger-1", "first")

	for name, want := range map[string]string{"named": "", "both": "mail", "without": ""} {
		expect.Equalf(t, e.findPod(name).Annotations[v1.AnnotationSelectedBy], want, "%s: record", name)
	}
	must.Succeed(t, e.client.Delete(t.Context(), e.group("selector")))
	e.awaitRecord("ledger-0", "first")
	e.awaitRecord("ledger-2", "")
}
