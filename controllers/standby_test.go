package controllers_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// leaseName is the name of the Lease by which operators elect a leader.
const leaseName = "operator"

// startReplica starts an operator with leader election. The Lease expires long after the test,
// unless it is short.
func (e *env) startReplica(lease, leaderGrace time.Duration) *operator {
	e.t.Helper()
	return e.startOperator(func(o *operator) { o.lease, o.leaderGrace = lease, leaderGrace })
}

// startLeader starts an operator and waits until it is the leader.
func (e *env) startLeader(lease time.Duration) *operator {
	e.t.Helper()
	leader := e.startReplica(lease, 0)
	select {
	case <-leader.elected:
	case <-time.After(testwait.Limit):
		e.t.Fatal("timed out waiting for the leader")
	}
	return leader
}

// leaseHolder returns who holds the Lease.
func (e *env) leaseHolder() string {
	e.t.Helper()
	lease := &coordinationv1.Lease{}
	must.Succeed(e.t, e.client.Get(e.t.Context(), e.key(leaseName), lease))
	return *lease.Spec.HolderIdentity
}

// awaitStreams waits until each agent has a number of streams.
func (e *env) awaitStreams(streams int, pods ...string) {
	e.t.Helper()
	for _, pod := range pods {
		e.eventually("the replicas are connected to "+pod, func() bool { return e.agents[pod].Streams() == streams })
	}
}

const longLease = time.Hour

// TestStandbyLeavesWritesToLeader: a standby is connected to the agents, and writes nothing while the leader does.
func TestStandbyLeavesWritesToLeader(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startLeader(longLease)
	standby := e.startReplica(longLease, longLease)
	e.runScenario()
	e.awaitStreams(2, "p-1", "p-3")
	if writes := standby.written(); len(writes) > 0 {
		t.Errorf("got %d writes of the standby, want none: %v", len(writes), writes)
	}
}

// TestStandbyWritesElectionsForCrashedLeader: the leader has crashed, and its Lease hasn't expired.
func TestStandbyWritesElectionsForCrashedLeader(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger", "other")
	}
	leader := e.startLeader(longLease)
	e.createGroup("ledger", withService, pods...)
	e.createGroup("other", nil, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	e.awaitAdopted("other", 1, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitCoordinator("ledger", "ledger-2", 7)
	holder := e.leaseHolder()
	standby := e.startReplica(longLease, time.Millisecond)
	e.awaitStreams(2, pods...)
	leader.stop()

	e.elect("ledger", "ledger-1", 8)
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	e.eventually("the Service points at the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-1") })
	if now := e.leaseHolder(); now != holder {
		t.Errorf("got Lease of %s, want that of the crashed leader, %s", now, holder)
	}
	e.awaitQuiet(standby)
	written := len(standby.written())
	e.edit("other", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.agents["ledger-0"].ChangeReport("other", func(r *control.Report) { r.Coordinator, r.Term = "ledger-0", 100 })
	e.awaitQuiet(standby)
	if writes := standby.written()[written:]; len(writes) > 0 {
		t.Errorf("got %v after a change of a group and the false report of one agent, want no write", writes)
	}
}

// TestStandbyBecomesLeader: a standby that acquires the Lease does what the leader left undone.
func TestStandbyBecomesLeader(t *testing.T) {
	e := newEnv(t)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	const lease = 2 * time.Second
	leader := e.startLeader(lease)
	e.createGroup("ledger", nil, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	standby := e.startReplica(lease, longLease)
	e.awaitStreams(2, pods...)
	leader.stop()
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	<-standby.elected
	e.eventually("the label of a deleted group is removed", func() bool { return e.role("ledger-2", "ledger") == "" })
	e.createGroup("ledger", nil, pods...)
	e.awaitAdopted("ledger", 1, pods...)
}
