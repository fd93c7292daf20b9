package controllers_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func onNode(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

// createNode creates a node. Nodes have no namespace, so it makes the name unique.
func (e *env) createNode(name string) string {
	e.t.Helper()
	name += "-" + e.namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Succeed(e.t, e.client.Create(e.t.Context(), node))
	return name
}

func (e *env) cordon(name string, cordoned bool) {
	e.t.Helper()
	e.changeNode(name, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
}

func (e *env) changeNode(name string, change func(*corev1.Node)) {
	e.t.Helper()
	node := &corev1.Node{}
	must.Succeed(e.t, e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, node))
	patch := client.MergeFrom(node.DeepCopy())
	change(node)
	must.Succeed(e.t, e.client.Patch(e.t.Context(), node, patch))
}

func (e *env) awaitExcluded(agent *fakeagent.Agent, group string, excluded bool) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("the agent reports excluded=%t", excluded), func() bool {
		report, _ := agent.Report(group)
		return report.Excluded == excluded
	})
}

// endTenure makes all agents report why a coordinator has lost the office, and follow the next one.
func (e *env) endTenure(cause control.EndCause, former string, term uint64, next string) {
	e.t.Helper()
	e.mu.Lock()
	for _, agent := range e.agents {
		agent.ChangeReport("ledger", func(r *control.Report) {
			r.Ended = &control.Ending{Coordinator: former, Term: term, Cause: cause, At: time.Now(), GapMicros: new(int64(5000))}
		})
	}
	e.mu.Unlock()
	e.elect("ledger", next, term+1)
	e.awaitCoordinator("ledger", next, int64(term+1))
}

func (e *env) requireEndReason(want v1.EndReason) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("the last tenure ended by %s", want), func() bool {
		history := e.group("ledger").Status.History
		return len(history) > 1 && history[1].EndReason == want
	})
}

// The operator excludes members on a cordoned node, or whose pod is being deleted, so that
// the coordinator hands over before it stops.
func TestHandOverBeforeNodeOrPodStops(t *testing.T) {
	e, o := newOperatedEnv(t)
	first, second := e.createNode("first"), e.createNode("second")
	e.podWith("p-0", []string{"ledger"}, onNode(first))
	p1 := e.podWith("p-1", []string{"ledger"}, onNode(second))
	p2 := e.podWith("p-2", []string{"ledger"}, onNode(second))
	e.createGroup("ledger", withShortWaits, "p-0", "p-1", "p-2")
	e.awaitAdopted("ledger", 0, "p-0", "p-1", "p-2")
	e.electAndAwait("ledger", "p-2", 7)

	e.cordon(second, true)
	e.awaitExcluded(p2, "ledger", true)
	e.awaitExcluded(p1, "ledger", true)
	e.endTenure(control.EndExcluded, "p-2", 7, "p-0")
	e.requireEndReason(v1.EndEvacuated)
	e.cordon(second, false)
	e.awaitExcluded(p2, "ledger", false)
	e.awaitExcluded(p1, "ledger", false)
	e.electAndAwait("ledger", "p-2", 9)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "p-2"}}
	must.Succeed(t, e.client.Delete(t.Context(), pod, client.GracePeriodSeconds(300)))
	e.awaitExcluded(p2, "ledger", true)
	if report, _ := p1.Report("ledger"); report.Excluded {
		t.Error("got p-1 excluded, want it eligible")
	}
	e.endTenure(control.EndExcluded, "p-2", 9, "p-1")
	e.requireEndReason(v1.EndPodDeleted)
	expect.Equalf(t, value(t, o.metrics, "conclave_operator_failover_seconds"), 2, "failovers in the metrics")

	p2.CloseStreams() // Without an operator, it becomes eligible again.
	p2.ChangeReport("ledger", func(r *control.Report) { r.Excluded, r.Eligible = false, true })
	e.awaitExcluded(p2, "ledger", true)
}
