package agents_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// silentConn never shakes hands, and counts when the operator gives up.
type silentConn struct {
	net.Conn
	abandoned *atomic.Int32
}

func (c silentConn) Close() error {
	c.abandoned.Add(1)
	return c.Conn.Close()
}

// The pods of a namespace accept connections, and never shake hands. The operator connects to an
// agent of another namespace before it has given up any of them.
func TestSilentAgentsDelayOnlyTheirNamespace(t *testing.T) {
	const silent = 200
	var dialed, abandoned atomic.Int32
	h := &harness{certificates: newCertificates(t)}
	h.start(t, agents.Options{Credentials: h.certificates, Log: logr.Discard(), Dial: func(ctx context.Context,
		network, address string,
	) (net.Conn, error) {
		if !strings.HasPrefix(address, "10.9.") {
			return h.network.Dial(ctx, network, address)
		}
		dialed.Add(1)
		conn, agent := net.Pipe()
		t.Cleanup(func() { _ = agent.Close() })
		return silentConn{conn, &abandoned}, nil
	}})
	for i := range silent {
		pod := types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("greedy-", i)}
		h.Follow(agents.Agent{Pod: pod, UID: types.UID(pod.Name), Address: fmt.Sprintf("10.9.0.%d:7375", i)}, 0)
	}
	h.eventually("all silent agents have been dialed", func() bool { return dialed.Load() >= silent })
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	h.runConnected(a, "1")
	expect.Equalf(t, abandoned.Load(), 0, "silent agents given up before the other one was connected")
}

// TestTablesOfANamespaceAreBounded: a user has many pods, whose agents lie about a hundred members.
// When some pods are gone, there is room for the tables of others.
func TestTablesOfANamespaceAreBounded(t *testing.T) {
	const most = 1 << 17
	h := newHarness(t)
	h.SetMaxTablesOfNamespace(most)
	rows := make([]control.Row, 100)
	for i := range rows {
		rows[i] = control.Row{Name: strings.Repeat("n", 253), Status: "Crashed"}
	}
	complete := func() (pods []string) {
		for pod, report := range h.Reports(key("ledger")) {
			if len(report.Processes) == len(rows) {
				pods = append(pods, pod)
			}
		}
		return pods
	}
	var agents []*fakeagent.Agent
	for i := range 8 {
		pod, ip := fmt.Sprint("ledger-", i), fmt.Sprint("10.0.0.", i)
		a := h.newAgent(pod, ip, "ledger")
		setReport(a, control.Report{Group: "ledger", UID: "u", Processes: rows, OnlyUnusual: true})
		h.run(a)
		h.follow(pod, pod, ip)
		agents = append(agents, a)
	}
	h.eventually("all have reported", func() bool { return len(h.Reports(key("ledger"))) == len(agents) })
	before := complete()
	if size := h.Tables("bank"); len(before) == 0 || len(before) == len(agents) || size > most || size < most/2 {
		t.Fatalf("got %d tables with %d bytes, want some, with at most %d", len(before), size, most)
	}
	for _, pod := range before {
		h.Forget(key(pod))
	}
	expect.Equalf(t, h.Tables("bank"), 0, "bytes after their pods are gone")
	for _, a := range agents {
		a.ChangeReport("ledger", func(r *control.Report) { r.Term++ })
	}
	h.eventually("others have room", func() bool { return len(complete()) == len(before) })
	for i := range agents {
		h.Forget(key(fmt.Sprint("ledger-", i)))
	}
	expect.Equalf(t, h.Tables("bank"), 0, "bytes without pods")
}

// greedy starts agents of pods in a namespace that respond to each request with the same text, and reports how often
// they have been connected.
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

// TestUnfinishedLinesOfANamespaceAreBounded: forty agents send most of a line, and not its end. The agent of another
// namespace reports.
func TestUnfinishedLinesOfANamespaceAreBounded(t *testing.T) {
	h := newHarness(t)
	connected := h.greedy(40, "data: "+strings.Repeat("x", 400_000))
	h.eventually("all have sent their part, and some were refused", func() bool { return connected.Load() > 45 })
	expect.AtMostf(t, h.Unread("greedy"), agents.MaxUnreadOfTenant, "bytes of unfinished lines")
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u", Digest: strings.Repeat("d", 200)})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the other agent has reported",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.UID == "u" }))
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
	h.eventually("the namespace has used its burst",
		func() bool { return h.TokensOfTenant("greedy") < agents.TenantByteBurst/100 })
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
	expect.AtMostf(t, after.TotalAlloc-before.TotalAlloc, 1<<20, "bytes for a line")
}
