package e2e

import (
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// testWithoutOperator checks that elections don't depend on the operator.
func testWithoutOperator(e env) {
	scale := func(to int) {
		e.kubectl("scale", "deployment/conclave-manager", "--namespace", operatorNamespace, "--replicas="+strconv.Itoa(to))
	}
	before := e.group("ledger").Status.Term
	scale(0)
	e.kubectl("wait", "pod", "--namespace", operatorNamespace, "-l", "app.kubernetes.io/name=conclave",
		"--for=delete", "--timeout", "5m",
		"--request-timeout", "0")
	e.simulateOutage()
	expect.Equalf(e.t, e.group("ledger").Status.Term, before, "without operator: term in the status")
	scale(2)
	e.awaitStatus(before)
}

// testWithoutAPIServer checks that elections don't depend on the API server. Without it, the leading manager exits.
func testWithoutAPIServer(e env) {
	before, lease := e.group("ledger").Status.Term, e.managerLease()
	e.control("kill", "control-plane")
	e.simulateOutage()
	if output, err := e.tryKubectl("get", "--raw", "/readyz"); err == nil {
		e.t.Fatalf("the API server responded after it was killed: %s", output)
	}
	e.control("start", "control-plane")
	started := time.Now()
	e.awaitStatus(before)
	e.waitUntil(defaultTimeout, "a manager renews the Lease again, and all replicas are ready", func() bool {
		var manager appsv1.Deployment
		e.get(operatorNamespace, "conclave-manager", &manager)
		return e.managerLease().RenewTime.After(started) && manager.Status.ReadyReplicas == 2
	})
	e.t.Logf("Lease holder before: %s, after: %s; restarts: %s", lease.HolderIdentity,
		e.managerLease().HolderIdentity, e.kubectl("get", "pods",
			"--namespace", operatorNamespace, "-o",
			"jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[*].restartCount} {end}"))
}

// simulateOutage waits for the duration of an outage, and kills the coordinator's agent in the middle. There must be no
// other change of the coordinator.
func (e env) simulateOutage() {
	e.t.Helper()
	start := time.Now()
	e.awaitAgreement(start, highest, pods...)
	time.Sleep(*outage / 2) // The outage continues.
	killed := time.Now()
	e.killAgent(highest)
	// On a busy machine, leases of ledger-3 may have lapsed before. Then it is held back, and another one comes first.
	e.waitUntil(defaultTimeout, "the others agree on a successor", func() bool {
		return slices.ContainsFunc(otherPods(highest), func(pod string) bool { return e.agreeOn(pod, otherPods(highest)...) })
	})
	e.awaitAgreement(killed, highest, pods...)
	time.Sleep(time.Until(start.Add(*outage)))
	if tenures := describeTenures(e.leadingSince(start)); len(tenures) != 3 {
		e.t.Errorf("got %d tenures in an outage of %s with one killed coordinator, want 3:\n%s", len(tenures), *outage,
			strings.Join(tenures, "\n"))
	}
}

// awaitStatus waits until the status shows the current coordinator and term.
func (e env) awaitStatus(before int64) {
	e.t.Helper()
	e.waitUntil(defaultTimeout, "the status shows the agents' term", func() bool {
		g, responses := e.group("ledger"), e.latestResponses()[highest]
		if len(responses) != 1 || !responses[0].Leading || g.coordinator() != highest {
			return false
		}
		return g.Status.Coordinator.Term == int64(responses[0].Term) //nolint:gosec // a term of a test
	})
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
	expect.AtLeastf(e.t, e.group("ledger").Status.Term, before+1, "term after term %d", before)
}

// managerLease returns the Lease by which the replicas of the manager elect a leader.
func (e env) managerLease() resourcelock.LeaderElectionRecord {
	e.t.Helper()
	var found coordinationv1.Lease
	e.get(operatorNamespace, "conclave-manager", &found)
	return *resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec)
}

// testLeaderOfOperatorLost cuts off the node of the coordinator, on which the operator's leader runs, too. The status,
// the labels and the Service must follow. Unless the machine is very slow, the standby writes them, because the Lease
// hasn't expired.
func testLeaderOfOperatorLost(e env) {
	nodes := e.nodesOf(samplesNamespace, pods...)
	cut := nodes[highest]
	var rest []string
	for _, pod := range pods {
		if nodes[pod] != cut {
			rest = append(rest, pod)
		}
	}
	if len(rest) < 3 {
		e.t.Fatalf("the nodes without the coordinator must have a majority of the pods, got %v", nodes)
	}
	e.moveLeaderOfOperator(cut)
	before := e.managerLease()
	e.t.Cleanup(func() { e.control("heal", cut) })
	start := time.Now()
	e.control("partition", cut)
	e.awaitCoordinator(rest[len(rest)-1])
	after := e.managerLease()
	e.t.Logf("status, labels and Service followed within %s; Lease holder before: %s, after: %s",
		time.Since(start).Round(100*time.Millisecond), before.HolderIdentity, after.HolderIdentity)
	e.control("heal", cut)
	e.awaitCoordinator(highest)
	e.awaitAllMembers()
}

// nodesOf returns the nodes of pods.
func (e env) nodesOf(namespace string, pods ...string) map[string]string {
	e.t.Helper()
	nodes := map[string]string{}
	for _, pod := range pods {
		var found corev1.Pod
		e.get(namespace, pod, &found)
		nodes[pod] = found.Spec.NodeName
	}
	return nodes
}

// moveLeaderOfOperator makes a replica on a node the leader, and the other replica run on another node.
func (e env) moveLeaderOfOperator(node string) {
	e.t.Helper()
	const selector = "app.kubernetes.io/name=conclave"
	awaitReplicas := func() {
		e.kubectl("rollout", "status", "deployment/conclave-manager", "--namespace", operatorNamespace, "--timeout",
			"5m", "--request-timeout", "0")
	}
	var others []string
	for _, name := range e.nodes() {
		if name != node {
			others = append(others, name)
		}
	}
	e.t.Cleanup(func() { e.kubectl(append([]string{"uncordon"}, others...)...) })
	e.kubectl(append([]string{"cordon"}, others...)...)
	e.kubectl("delete", "pods", "--namespace", operatorNamespace, "-l", selector, "--timeout",
		"5m", "--request-timeout", "0")
	awaitReplicas()
	e.kubectl(append([]string{"uncordon"}, others...)...)
	leader := e.awaitLeaderOfOperator()
	for pod := range strings.FieldsSeq(e.kubectl("get", "pods", "--namespace", operatorNamespace, "-l", selector, "-o",
		"jsonpath={.items[*].metadata.name}")) {
		if pod != leader {
			e.kubectl("delete", "pod", pod, "--namespace", operatorNamespace, "--timeout", "5m", "--request-timeout", "0")
		}
	}
	awaitReplicas()
}

// awaitLeaderOfOperator returns the pod that holds the Lease.
func (e env) awaitLeaderOfOperator() (leader string) {
	e.t.Helper()
	e.waitUntil(defaultTimeout, "a replica of the operator that runs holds the Lease", func() bool {
		leader = e.managerLease().HolderIdentity
		var replicas corev1.PodList
		e.list(operatorNamespace, nil, &replicas)
		return slices.ContainsFunc(replicas.Items, func(pod corev1.Pod) bool { return pod.Name == leader })
	})
	return leader
}
