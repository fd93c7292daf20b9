package controllers_test

import (
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// An agent has lost its state directory. It votes under the next list, which has the same members, and the coordinator
// goes on.
func TestLostDirectoryBeginsNextList(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	before, revision := e.group("ledger").Status.Protocol.MemberList, e.document("ledger").Revision
	const lost = "00000000000000aa"
	must.Succeed(t, e.agents["ledger-0"].Stop())
	written := len(o.written())
	e.startAgent("ledger-0", lost, "ledger")
	e.awaitAdopted("ledger", before.Version, "ledger-0", "ledger-1", "ledger-2")
	e.elect("ledger", "ledger-2", 7)
	e.awaitList("ledger", before.Version, "ledger-0", "ledger-1", "ledger-2")
	e.awaitQuiet(o)
	list := e.group("ledger").Status.Protocol.MemberList
	if list.Previous.Version != before.Version || list.Identities["ledger-0"] != lost ||
		list.Identities["ledger-1"] != before.Identities["ledger-1"] {
		t.Errorf("got list %+v after %+v, want the next one with the identity of ledger-0", list, before)
	}
	expect.AtLeastf(t, e.document("ledger").Revision, revision+1, "revision")
	if c := e.group("ledger").Status.Coordinator; c == nil || c.Term != 7 {
		t.Errorf("got coordinator %+v, want that of before", c)
	}
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
	// The agent is gone and comes back, and the list begins and settles.
	expect.AtMostf(t, len(kinds(o.written()[written:])), 6, "writes")
}
