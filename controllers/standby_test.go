package controllers_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// leaseName is the name of the Lease by which operators elect a leader.
const leaseName = "operator"

// startReplica starts an operator with leader election. The Lease expires long after the test, unless it is short.
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

// awaitStreams waits until each agent has a number of streams.
func (e *env) awaitStreams(streams int, pods ...string) {
	e.t.Helper()
	for _, pod := range pods {
		e.eventually("the replicas are connected to "+pod, func() bool { return e.agents[pod].Streams() == streams })
	}
}

const longLease = time.Hour

// TestStandbyBecomesLeader: a standby that acquires the Lease does what the leader left undone.
func TestStandbyBecomesLeader(t *testing.T) {
	e := newSequentialEnv(t)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	const lease = 2 * time.Second
	leader := e.startLeader(lease)
	e.createGroup("ledger", nil, pods...)
	e.awaitAdopted("ledger", 0, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	standby := e.startReplica(lease, longLease)
	e.awaitStreams(2, pods...)
	leader.stop()
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	<-standby.elected
	e.eventually("the label of a deleted group is removed", func() bool { return e.role("ledger-2", "ledger") == "" })
	e.createGroup("ledger", nil, pods...)
	e.awaitAdopted("ledger", 0, pods...)
}

// watchedConn records that it has been closed.
type watchedConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestLeaderBecomesStandby: a replica that loses its Lease writes nothing more, keeps its connections to agents, and
// when it leads again, does what was left undone.
func TestLeaderBecomesStandby(t *testing.T) {
	e := newEnv(t)
	var first sync.Once
	stream := &watchedConn{}
	leadership := controllers.NewLeadership()
	leadership.Set(true)
	o := e.startOperator(func(o *operator) {
		o.leadership, o.leaderGrace = leadership, longLease
		o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := e.network.Dial(ctx, network, address)
			if err == nil {
				first.Do(func() { stream.Conn, conn = conn, stream })
			}
			return conn, err
		}
	})
	e.createSettledGroup(o)
	series := func() int {
		families, err := o.metrics.Gather()
		must.Succeed(t, err)
		count := 0
		for _, family := range families {
			if family.GetName() == "conclave_operator_group_coordinator" {
				count = len(family.GetMetric())
			}
		}
		return count
	}
	expect.Equalf(t, series(), 1, "groups in the metrics of the leader")
	leadership.Set(false)
	e.eventually("the standby has no metrics of groups", func() bool { return series() == 0 })
	before := len(o.written())
	e.selectedPod("audit-0", "", withApp("audit"))
	e.createGroup("audit", func(group *v1.ElectionGroup) {
		group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "audit"}}
		group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	})
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.awaitQuiet(o)
	expect.Lenf(t, kinds(o.written()[before:]), 0, "writes of the standby")
	leadership.Set(true)
	e.awaitRecord("audit-0", "audit")
	e.eventually("the settings are published",
		func() bool { return e.document("ledger").Group.Algorithm == string(v1.Bully) })
	e.electAndAwait("ledger", "ledger-1", 8)
	e.eventually("the leader has metrics of groups", func() bool { return series() > 0 })
	expect.Equalf(t, stream.closed.Load(), false, "the connection to an agent has ended")
}

// fivePods are the members of the groups in the tests of losses.
var fivePods = []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3", "ledger-4"}

// crashLeader creates a group of five, elects ledger-4 in term 7, and crashes the leader after
// a standby has connected to the agents.
func (e *env) crashLeader(changes ...func(*operator)) (standby *operator) {
	e.t.Helper()
	for _, pod := range fivePods {
		e.pod(pod, "ledger")
	}
	leader := e.startLeader(longLease)
	e.createGroup("ledger", withService, fivePods...)
	e.awaitAdopted("ledger", 0, fivePods...)
	e.electAndAwait("ledger", "ledger-4", 7)
	e.awaitRole("ledger-4", "ledger", v1.RoleCoordinator)
	e.awaitQuiet(leader)
	changes = append(changes, func(o *operator) { o.lease, o.leaderGrace = longLease, time.Millisecond })
	standby = e.startOperator(changes...)
	e.awaitStreams(2, fivePods...)
	leader.stop()
	return standby
}

// TestStandbyFinishesOnlyTraffic: the leader has crashed, and its Lease hasn't expired. A write after the status fails
// for long. The standby repeats it, but doesn't act as the leader meanwhile.
func TestStandbyFinishesOnlyTraffic(t *testing.T) {
	e := newEnv(t)
	var reject atomic.Bool
	standby := e.crashLeader(func(o *operator) {
		o.rejects = func(r *http.Request) bool { return reject.Load() && strings.Contains(r.URL.Path, "/endpointslices/") }
	})
	reject.Store(true)
	e.electAndAwait("ledger", "ledger-3", 8)
	e.awaitRole("ledger-3", "ledger", v1.RoleCoordinator)
	written := len(standby.written())
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("the standby has tried twice more", func() bool { return len(standby.written()) > written+2 })
	for _, write := range kinds(standby.written()[written:]) {
		expect.Equalf(t, write, "PATCH endpointslices",
			"write after the status was written (only the one that fails)")
	}
	reject.Store(false)
	e.awaitRoute("ledger-3")
}
