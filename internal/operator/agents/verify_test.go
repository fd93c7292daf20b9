package agents_test

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

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
