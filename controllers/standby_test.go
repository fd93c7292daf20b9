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
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// neverLate is how late the leader may be for a standby that never acts in its place.
const neverLate = time.Hour

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
	o := e.startOperator(func(o *operator) {
		o.leaderGrace = neverLate
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
	o.leadership.Set(false)
	e.eventually("the standby has no metrics of groups", func() bool { return series() == 0 })
	before := len(o.written())
	e.selectedPod("audit-0", "", withApp("audit"))
	e.createGroup("audit", withSelector("audit"))
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.awaitQuiet(o)
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	e.awaitQuiet(o)
	expect.Lenf(t, kinds(o.written()[before:]), 0, "writes of the standby")
	o.leadership.Set(true)
	e.awaitRecord("audit-0", "audit")
	e.awaitRole("ledger-2", "ledger", "")
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	e.createGroup("ledger", nil, pods...)
	e.awaitAdopted("ledger", 0, pods...)
	e.electAndAwait("ledger", "ledger-1", 8)
	e.eventually("the leader has metrics of groups", func() bool { return series() > 0 })
	expect.Equalf(t, stream.closed.Load(), false, "the connection to an agent has ended")
}

// TestStandbyFinishesOnlyTraffic: there is no leader. A write after the status fails for long. The standby repeats it,
// but doesn't act as the leader meanwhile.
func TestStandbyFinishesOnlyTraffic(t *testing.T) {
	e := newEnv(t)
	var reject atomic.Bool
	standby := e.startOperator(func(o *operator) {
		o.leaderGrace = time.Millisecond
		o.rejects = func(r *http.Request) bool { return reject.Load() && strings.Contains(r.URL.Path, "/endpointslices/") }
	})
	e.createSettledGroup(standby)
	standby.leadership.Set(false)
	reject.Store(true)
	e.electAndAwait("ledger", "ledger-1", 8)
	e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	written := len(standby.written())
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("the standby has tried twice more", func() bool { return len(standby.written()) > written+2 })
	for _, write := range kinds(standby.written()[written:]) {
		expect.Equalf(t, write, "PATCH endpointslices",
			"write after the status was written (only the one that fails)")
	}
	reject.Store(false)
	e.awaitRoute("ledger-1")
}
