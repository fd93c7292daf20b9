package agents_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// A pod can get another address, for example after its node was rebooted. What its agent reported
// before remains until it is connected again, but no longer.
func TestNewAddressOfPod(t *testing.T) {
	h := newHarness(t)
	before := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	for _, group := range []string{"ledger", "audit"} {
		setReport(before, control.Report{Group: group, UID: "u", Coordinator: "ledger-0", Term: 7})
	}
	h.run(before)
	h.follow("ledger-0", "pod-uid", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	after := h.newAgent("ledger-0", "10.0.0.2", "ledger", "audit")
	setReport(after, control.Report{Group: "ledger", UID: "u", Coordinator: "ledger-1", Term: 8})
	h.follow("ledger-0", "pod-uid", "10.0.0.2")
	if len(h.Reports(key("audit"))) == 0 {
		t.Error("got no report while the agent isn't connected, want the last one")
	}
	h.run(after)
	h.eventually("the agent's new report is stored", h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 8 }))
	h.eventually("the report on a group that the agent isn't in anymore is removed", func() bool { return len(h.Reports(key("audit"))) == 0 })
	h.Forget(key("ledger-0"))
	expect.Equalf(t, len(h.Reports(key("ledger"))), 0, "report of a pod that was forgotten")
}

// BenchmarkForget measures what a pod without an agent costs, among many groups.
func BenchmarkForget(b *testing.B) {
	const groups = 10000
	certificates := newCertificates(b)
	all := agents.New(agents.Options{Credentials: certificates, Log: logr.Discard()})
	for i := range groups {
		all.PutReport(key(fmt.Sprintf("p-%d", i)), fmt.Sprintf("g-%d", i))
	}
	for b.Loop() {
		all.Forget(key("stranger"))
	}
}

// TestVerify checks an agent that can be reached, and one that can't although its connection is open.
func TestVerify(t *testing.T) {
	h := newHarness(t)
	for pod, ip := range map[string]string{"ledger-0": "10.0.0.1", "ledger-1": "10.0.0.2"} {
		a := h.newAgent(pod, ip, "ledger")
		setReport(a, control.Report{Group: "ledger", UID: "u", Term: 7})
		h.run(a)
		h.follow(pod, "1", ip)
		h.eventually(pod+" is connected", h.connected(pod))
	}
	first, _ := h.Connection(key("ledger-0"))
	h.network.Cut("10.0.0.2:7375")
	h.eventually("ledger-1 isn't connected", func() bool {
		h.Verify(key("ledger-1"))
		return !h.connected("ledger-1")()
	})
	h.eventually("ledger-0 is connected again", func() bool {
		h.Verify(key("ledger-0")) // At first, its connection isn't stable yet.
		now, _ := h.Connection(key("ledger-0"))
		return now.Connected && now.Since != first.Since
	})
	second, _ := h.Connection(key("ledger-0"))
	stable := func() bool { return time.Since(second.Since) > 2*time.Second }
	h.eventually("the connection to ledger-0 is stable", stable)
	h.Verify(key("ledger-0")) // It is too soon.
	h.Verify(key("stranger"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if now, _ := h.Connection(key("ledger-0")); now.Since != second.Since || h.disconnected["ledger-0"] {
		t.Errorf("got connection %+v after %+v, want no signal that ledger-0 isn't connected, and no further connection", now, second)
	}
}
