package agents_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// greedy starts agents of pods in a namespace that respond to each request with the same text, and reports how often they have been
// connected.
func (h *harness) greedy(count int, text string) *atomic.Int32 {
	h.t.Helper()
	var connected atomic.Int32
	for i := range count {
		pod, ip := types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("greedy-", i)}, fmt.Sprint("10.9.0.", i)
		a := h.newAgentIn(pod, ip, "ledger")
		err := a.ServeRaw(h.t.Context(), func(conn net.Conn) {
			connected.Add(1)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+text)
			<-h.t.Context().Done()
		})
		must.Succeed(h.t, err)
		h.Follow(agents.Agent{Pod: pod, UID: types.UID(pod.Name), Address: ip + ":7375"}, 0)
	}
	return &connected
}

// TestUnfinishedLinesOfANamespaceAreBounded: forty agents send most of a line, and not its end. The agent of another namespace reports.
func TestUnfinishedLinesOfANamespaceAreBounded(t *testing.T) {
	h := newHarness(t)
	connected := h.greedy(40, "data: "+strings.Repeat("x", 400_000))
	h.eventually("all have sent their part, and some were refused", func() bool { return connected.Load() > 45 })
	expect.AtMostf(t, h.Unread("greedy"), agents.MaxUnreadOfTenant, "bytes of unfinished lines")
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u", Digest: strings.Repeat("d", 200)})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the other agent has reported", h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.UID == "u" }))
	for i := range 40 {
		h.Forget(types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("greedy-", i)})
	}
	h.eventually("nothing is left", func() bool { return h.Unread("greedy") == 0 })
}

// TestBytesOfANamespaceAreBounded: each agent stays below its own limit.
func TestBytesOfANamespaceAreBounded(t *testing.T) {
	h := newHarness(t)
	line := ":" + strings.Repeat("a", 1000) + "\n"
	h.greedy(8, strings.Repeat(line, 3<<20/len(line)))
	h.eventually("the namespace has used its burst", func() bool { return h.TokensOfTenant("greedy") < agents.TenantByteBurst/100 })
}

// TestEmptyRowsTakeNoMemory: the longest line, with as many rows as it can have.
func TestEmptyRowsTakeNoMemory(t *testing.T) {
	line := []byte(`{"group":"ledger","processes":[{}` + strings.Repeat(",{}", 21_000) + "]}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := agents.DecodeGroup(line)
	runtime.ReadMemStats(&after)
	expect.ErrorContainsf(t, err, "report must have at most 116 objects and 1600 elements, got 21002 and 21001",
		"too many rows")
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("got %d bytes for a line of %d, want less", used, len(line))
	}
}
