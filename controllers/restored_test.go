package controllers_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A restore from a backup creates a group again, with the status that it had. Agents of the
// former group still run. The restored list doesn't begin before they have left: the two groups
// could have a coordinator each.
func TestRestoredStatusWaitsForEarlierGroup(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	first.stop()
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		e.agents[pod].Refuse(func(call fakeagent.Call) int {
			if call.Method == http.MethodDelete {
				return http.StatusServiceUnavailable // The agent is still handing over.
			}
			return 0
		})
	}
	// One pod was a member before, too.
	members := []string{"ledger-0", "x-1", "x-2"}
	e.pod("x-1", "ledger")
	e.pod("x-2", "ledger")
	group := e.createGroup("ledger", withShortWaits, members...)
	previous := &v1.PreviousList{Members: group.Spec.Members[:2], LeaseMillis: 60}
	restored := v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)}
	group.Status.Protocol = v1.ProtocolState{
		MemberList: &v1.MemberList{
			Version: 4, State: v1.ListSettled, Members: group.Spec.Members, Previous: previous, LeaseMillis: 60, Floor: new(int64(5)),
		},
		Document: &restored,
	}
	group.Status.Term = 7
	must.Succeed(t, e.client.Status().Update(t.Context(), group))
	contact := make(chan struct{})
	second := e.startOperator(func(o *operator) {
		o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			select {
			case <-contact:
				return e.network.Dial(ctx, network, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	wantNothingPublished := func(while string) {
		t.Helper()
		e.awaitQuiet(second)
		if got := e.group("ledger").Status.Protocol.Document; *got != restored || e.inGroup("x-1", "ledger") {
			t.Errorf("got the restored list published as %+v while %s, want it to wait", got, while)
		}
	}
	e.awaitCondition("ledger", v1.ConditionProgressing, v1.ReasonSettled)
	wantNothingPublished("no agent has been contacted")
	close(contact)
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonEarlierGroup)
	wantNothingPublished("the earlier group may have a coordinator")
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		e.agents[pod].Refuse(nil)
	}
	e.awaitAdopted("ledger", 4, members...)
	e.eventually("the others have left", func() bool { return !e.inGroup("ledger-1", "ledger") && !e.inGroup("ledger-2", "ledger") })
}
