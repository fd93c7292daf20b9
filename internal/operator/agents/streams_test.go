package agents_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

func TestReportsAreStored(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	setReport(a, control.Report{Group: "ledger", UID: "u", Version: 1, Coordinator: "ledger-2", Term: 7})
	h.runConnected(a, "pod-uid")
	first, _ := h.Agent(key("ledger-0"), "pod-uid", "ledger")
	if first.Report == nil || first.Report.Coordinator != "ledger-2" {
		t.Fatalf("got %+v, want the initial report before the agent counts as connected", first)
	}
	a.ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-1", 8 })
	h.eventually("the changed report is stored",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 8 }))
	again, _ := h.Agent(key("ledger-0"), "pod-uid", "ledger")
	expect.Equalf(t, again.AdoptedAt, first.AdoptedAt, "time since it reports the list")
	a.ChangeReport("ledger", func(r *control.Report) { r.Version = 2 })
	h.eventually("the next list is reported later", func() bool {
		next, _ := h.Agent(key("ledger-0"), "pod-uid", "ledger")
		return next.AdoptedAt.After(first.AdoptedAt)
	})
	a.Leave("ledger")
	h.eventually("the report is removed", func() bool { return len(h.Reports(key("ledger"))) == 0 })
}

// An agent can't report for another pod, or on a group that its certificate isn't for.
func TestOnlyCertifiedReportsAreStored(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "audit", UID: "u"})
	setReport(a, control.Report{Group: "ledger", UID: "u"})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.follow("ledger-1", "2", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	expect.Lenf(t, h.Reports(key("audit")), 0, "reports on group audit: certificate isn't for it")
	for group, notIn := range map[string]bool{"ledger": false, "audit": true} {
		got, _ := h.Agent(key("ledger-0"), "1", group)
		expect.Equalf(t, got.NotInGroup, notIn, "%s isn't in the agent's certificate", group)
	}
	h.eventually("the connection for ledger-1 is refused", func() bool {
		connection, _ := h.Connection(key("ledger-1"))
		return connection.Problem == "certificate must be for pod bank/ledger-1, got conclave://bank/ledger/ledger-0"
	})
}

func TestAgentWithoutCertificate(t *testing.T) {
	refused := map[string]string{"10.0.0.1": "no certificate"}
	h := newHarnessWith(t, agents.Options{
		Credentials: newCertificates(t), Dial: new(fakeagent.Network).Dial, Log: logr.Discard(),
		Refused: func(host string) string { return refused[host] },
	})
	for ip, want := range map[string]string{"10.0.0.1": "no certificate", "10.0.0.2": "connection refused"} {
		h.follow("ledger-0", "1", ip)
		h.eventually("the connection has its problem", func() bool {
			connection, _ := h.Connection(key("ledger-0"))
			return connection.Problem == want
		})
	}
}

func TestStreamReconnects(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	setReport(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	setReport(a, control.Report{Group: "audit", UID: "u", Term: 1})
	h.runConnected(a, "1")
	h.stop(a)
	h.eventually("the connection has its problem", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return !connection.Connected && connection.Problem == "connection refused"
	})
	if h.Reports(key("ledger"))["ledger-0"] == nil {
		t.Error("got no report, want the last one to stay while the agent isn't connected")
	}
	a.Leave("audit")
	h.run(a)
	h.eventually("ledger-0 is connected again", h.connected("ledger-0"))
	h.eventually("the report on audit is removed", func() bool { return len(h.Reports(key("audit"))) == 0 })
	expect.EqualSlicesf(t, h.Groups(key("ledger-0")), []string{"ledger"}, "groups (ledger only)")
}

// The end of a stable connection isn't signaled if the agent accepts the next one.
func TestStableStreamReconnectsWithoutSignal(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	h.runConnected(a, "1")
	first := h.ConnectedSince(key("ledger-0"))
	h.eventually("the connection is stable", func() bool { return time.Since(first) > 2*time.Second })
	a.CloseStreams()
	h.eventually("ledger-0 is connected again", func() bool {
		return h.connected("ledger-0")() && h.ConnectedSince(key("ledger-0")) != first
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	expect.Equalf(t, h.disconnected["ledger-0"], false, "got a signal that ledger-0 isn't connected")
}

// Reports of an earlier pod of the same name aren't attributed to the new one.
func TestNewPodIsAnotherAgent(t *testing.T) {
	h := newHarness(t)
	old := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(old, control.Report{Group: "ledger", UID: "u", Term: 1})
	h.run(old)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	h.follow("ledger-0", "2", "10.0.0.2")
	expect.Lenf(t, h.Reports(key("ledger")), 0, "reports of the new pod")
	next := h.newAgent("ledger-0", "10.0.0.2", "ledger")
	setReport(next, control.Report{Group: "ledger", UID: "u", Term: 2})
	h.run(next)
	h.eventually("the new agent's report is stored",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 2 }))
	h.eventually("the old agent's stream is closed", func() bool { return old.Streams() == 0 })
	h.Forget(key("ledger-0"))
	h.eventually("the new agent's stream is closed", func() bool { return next.Streams() == 0 })
	if _, ok := h.Connection(key("ledger-0")); ok || len(h.Reports(key("ledger"))) != 0 {
		t.Error("got a connection or a report of a pod that was forgotten")
	}
}

func TestCommands(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	failures := 2
	a.Refuse(func(call fakeagent.Call) int {
		if call.Method == http.MethodDelete {
			return http.StatusConflict
		}
		if failures--; failures >= 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	h.Send(key("ledger-0"), agents.LeaveGroup("ledger", "the agent isn't connected", 4))
	h.runConnected(a, "1")
	document := agents.PushDocument("ledger", "u", 4, []byte(`{"uid":"u"}`))
	h.Send(key("ledger-0"), document)
	h.Send(key("ledger-0"), document)
	h.eventually("the agent accepts the document at the third attempt", func() bool { return len(a.Calls()) == 3 })
	h.Send(key("ledger-0"), document)
	h.Send(key("ledger-0"), agents.SetEligible("ledger", false))
	h.eventually("the agent is excluded", func() bool { return len(a.Calls()) == 4 })
	h.Send(key("ledger-0"), agents.LeaveGroup("ledger", "u", 4))
	h.eventually("the agent rejects the command to leave", func() bool { return len(a.Calls()) == 5 })
	want := fakeagent.Call{Method: http.MethodPut, Path: "/v1/groups/ledger", Body: `{"uid":"u"}`}
	if got := a.Calls(); got[0] != want || got[2] != want {
		t.Errorf("got calls %v, want the first three to be %v", got, want)
	}
	if got := a.Calls()[3]; got.Path != "/v1/groups/ledger/eligibility" || got.Body != `{"eligible":false}` {
		t.Errorf("got %v, want the exclusion of ledger-0", got)
	}
	expect.Equalf(t, a.Calls()[4].Path, "/v1/groups/ledger?uid=u&revision=4", "command to leave")
}

// An agent rejects a document, for example because the clock of its node is wrong. It gets the document again.
func TestRejectedDocumentIsRepeated(t *testing.T) {
	h := newHarness(t)
	h.SetRejectedRetry(time.Millisecond)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	rejections := 2
	a.Refuse(func(fakeagent.Call) int {
		if rejections--; rejections >= 0 {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	})
	h.runConnected(a, "1")
	h.Send(key("ledger-0"), agents.PushDocument("ledger", "u", 4, []byte(`{"uid":"u"}`)))
	h.eventually("the agent has accepted the document", func() bool { return len(a.Calls()) == 3 })
}

// TestWitness: the operator has one connection for each namespace, in which a witness reports any group. The
// certificate must be that of a witness, with the UID of the pod.
func TestWitness(t *testing.T) {
	h := newHarness(t)
	for ip, identity := range map[string]fakeagent.Identity{
		"10.0.0.1": {Pod: "w-0", UID: "1", Witness: true},
		"10.0.0.2": {Pod: "w-1", Witness: true},
		"10.0.0.3": {Pod: "w-2", UID: "3", Groups: []string{"ledger"}},
		"10.0.0.4": {Pod: "w-3", UID: "4", Witness: true},
	} {
		identity.Namespace, identity.Address = "bank", ip+":7375"
		a := h.newAgentOf(identity)
		setReport(a, control.Report{Group: "ledger", UID: "u"})
		for i := 0; i < 1000 && identity.Pod == "w-3"; i++ {
			setReport(a, control.Report{Group: fmt.Sprint("g", i), UID: "u"})
		}
		h.run(a)
	}
	follow := func(pod, uid, ip string) {
		h.Follow(agents.Agent{Pod: key(pod), UID: types.UID(uid), Address: ip + ":7375", Witness: true}, 0)
	}
	follow("w-0", "1", "10.0.0.1")
	h.eventually("w-0 is connected", h.connected("w-0"))
	expect.Lenf(t, h.Reports(key("ledger")), 1, "reports on group ledger")
	got, _ := h.Agent(key("w-0"), "1", "audit")
	expect.Equalf(t, got.NotInGroup, false, "the operator can't give it another group")
	follow("w-3", "4", "10.0.0.4")
	h.eventually("w-3 is connected", h.connected("w-3"))
	expect.Lenf(t, h.Groups(key("w-3")), 1000, "groups of w-3, which reports 1001: it can't use up the memory")
	follow("w-1", "2", "10.0.0.2")
	follow("w-2", "3", "10.0.0.3")
	for pod, problem := range map[string]string{
		"w-1": "certificate must be for the pod with UID 2, got ",
		"w-2": `request rejected with status 404: Not Found`, // It is an agent, and has no paths of namespaces.
	} {
		h.eventually(pod+" is refused", func() bool {
			connection, _ := h.Connection(key(pod))
			return connection.Problem == problem
		})
	}
}

// A document goes to the pod for which it is: an address may by now be that of the next pod of the same name, which has
// no state.
func TestAgentOfAnotherPodIsRefused(t *testing.T) {
	h := newHarness(t)
	a := h.newAgentOf(fakeagent.Identity{
		Namespace: "bank", Pod: "ledger-0", UID: "2", Groups: []string{"ledger"}, Address: "10.0.0.1:7375",
	})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the operator says whose certificate it is", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return connection.Problem == "certificate must be for the pod with UID 1, got 2"
	})
	h.follow("ledger-0", "2", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
}
