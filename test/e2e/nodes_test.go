package e2e

import (
	"context"

	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// testOneWay lets packets between the node of the coordinator and others pass in one direction only. Another member
// leads until both directions work again.
func testOneWay(e env) {
	nodes := e.nodesOf(samplesNamespace, pods...)
	cut := kindnodes.Network{Node: nodes[highest]}
	var successor string // the highest of the others, which come in the order of their priorities
	for _, pod := range pods {
		if nodes[pod] != cut.Node {
			successor = pod
		}
	}
	heal := func() { must.Succeed(e.t, e.machines.Heal(context.Background(), cut)) }
	e.t.Cleanup(heal)
	for _, blocked := range []kindnodes.Direction{kindnodes.Received, kindnodes.Sent} {
		must.Succeed(e.t, e.machines.Drop(e.t.Context(), cut, kindnodes.Packets{Direction: blocked}))
		e.awaitCoordinator(successor)
		heal()
		e.awaitCoordinator(highest)
		e.awaitAllMembers()
	}
}

// testPowerFailure kills all nodes with members at the same time, and starts them again. The agents continue with
// what they have stored.
func testPowerFailure(e env) {
	before, workers := e.group("ledger").Status.Term, e.nodes()
	e.t.Cleanup(func() { must.Succeed(e.t, e.machines.Start(context.Background(), workers...)) })
	must.Succeed(e.t, e.machines.Kill(e.t.Context(), workers...))
	must.Succeed(e.t, e.machines.Start(e.t.Context(), workers...))
	e.awaitStatus(before)
}
