package agents_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The operator doesn't read a response header without end: it would fill the memory that all agents share.
func TestEndlessHeaderIsNotRead(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	var sent atomic.Int64
	done := make(chan struct{})
	respond := func(conn net.Conn) {
		line := "X-Much: " + strings.Repeat("a", 1<<16) + "\r\n"
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"); err != nil {
			return
		}
		for {
			n, err := io.WriteString(conn, line)
			if err != nil || sent.Add(int64(n)) > 64<<20 {
				select {
				case done <- struct{}{}:
				case <-t.Context().Done():
				}
				return
			}
		}
	}
	must.Succeed(t, a.ServeRaw(t.Context(), respond))
	h.follow("ledger-0", "1", "10.0.0.1")
	<-done
	expect.AtMostf(t, sent.Load(), int64(16<<20), "bytes of the header read")
}

func TestVersionsAreBounded(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3-4-g0123abc": "v1.2.3-4-g0123abc", "": "", strings.Repeat("v", 65): "invalid", "v1\n": "invalid",
		"v1\"": "invalid", "é": "invalid",
	} {
		expect.Equalf(t, agents.ShortVersion(version), want, "%q", version)
	}
}

// A megabyte of empty rows takes fifty in memory, for each of a hundred groups.
func TestOversizedReportsAreRefused(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	setReport(a, control.Report{Group: "ledger", UID: "u", Processes: make([]control.Row, 10_000)})
	setReport(a,
		control.Report{Group: "audit", UID: "u", Digest: strings.Repeat("d", 900_000), Problems: make([]string, 10_000)})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected or has a problem", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return connection.Connected || connection.Problem != ""
	})
	for _, group := range []string{"ledger", "audit"} {
		if report := h.Reports(key(group))["ledger-0"]; report != nil {
			t.Errorf("%s: got a report with %d rows and %d bytes of digest, want none", group, len(report.Processes),
				len(report.Digest))
		}
	}
}

// TestTablesAreBounded: a pod can be in many groups, and name a hundred members in each.
func TestTablesAreBounded(t *testing.T) {
	h := newHarness(t)
	var groups []string
	for i := range 60 {
		groups = append(groups, fmt.Sprint("group-", i))
	}
	a := h.newAgent("ledger-0", "10.0.0.1", groups...)
	rows := make([]control.Row, 100)
	for i := range rows {
		rows[i] = control.Row{Name: strings.Repeat("n", 253), Status: "Crashed"}
	}
	for _, group := range groups {
		setReport(a, control.Report{Group: group, UID: "u", Processes: rows, OnlyUnusual: true})
	}
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("all reports are stored", func() bool {
		return !slices.ContainsFunc(groups,
			func(group string) bool { return h.Reports(key(group))["ledger-0"] == nil })
	})
	size, complete := 0, 0
	for _, group := range groups {
		r := h.Reports(key(group))["ledger-0"]
		size += r.Size()
		if len(r.Processes) == len(rows) {
			complete++
		} else if len(r.Processes) > 0 || r.OnlyUnusual {
			t.Errorf("%s: got %d rows, want none, or all", group, len(r.Processes))
		}
	}
	if complete == 0 || complete == len(groups) || size > 1<<20 {
		t.Errorf("got %d tables with %d bytes, want some, with at most 1 MiB", complete, size)
	}
}

// An agent rejects its exclusion while no other member is eligible. After its next report, it may accept it.
func TestRejectedExclusionIsRepeatedAfterNextReport(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	var calls atomic.Int32
	a.Refuse(func(fakeagent.Call) int {
		if calls.Add(1) == 1 {
			return http.StatusConflict
		}
		return http.StatusNoContent
	})
	h.runConnected(a, "1")
	h.Send(key("ledger-0"), agents.SetEligible("ledger", false))
	h.eventually("the agent has rejected the command", func() bool { return calls.Load() == 1 })
	a.ChangeReport("ledger", func(r *control.Report) { r.Term = 2 })
	h.eventually("the next report is stored",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 2 }))
	h.expectCommandRepeated(func() bool { return calls.Load() >= 2 })
}

// An agent that leaves a group and joins one of the same name doesn't remember that it was excluded.
func TestExclusionIsRepeatedAfterRejoining(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u"})
	h.runConnected(a, "1")
	h.Send(key("ledger-0"), agents.SetEligible("ledger", false))
	h.eventually("the agent has the command", func() bool { return len(a.Calls()) == 1 })
	a.ChangeReport("ledger", func(r *control.Report) { r.Excluded = true })
	h.eventually("the agent reports its exclusion",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Excluded }))
	a.Leave("ledger")
	setReport(a, control.Report{Group: "ledger", UID: "v", Eligible: true})
	h.eventually("the agent is in another group",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.UID == "v" }))
	h.expectCommandRepeated(func() bool { return len(a.Calls()) >= 2 })
}

// expectCommandRepeated waits until the operator has sent ledger-0 the command again, over the same connection.
func (h *harness) expectCommandRepeated(repeated func() bool) {
	h.t.Helper()
	before, _ := h.Connection(key("ledger-0"))
	h.eventually("the command is repeated, or the agent reconnects", func() bool {
		h.Send(key("ledger-0"), agents.SetEligible("ledger", false))
		now, _ := h.Connection(key("ledger-0"))
		return repeated() || !reflect.DeepEqual(now, before)
	})
	if now, _ := h.Connection(key("ledger-0")); !reflect.DeepEqual(now, before) {
		h.t.Errorf("got connection %+v, want the command repeated over %+v", now, before)
	}
}

// The reports of several elections at once each trigger a change.
func TestBurstOfReportsIsNotThrottled(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	setReport(a, control.Report{Group: "ledger", UID: "u"})
	h.runConnected(a, "1")
	for term := range uint64(40) {
		a.ChangeReport("ledger", func(r *control.Report) { r.Term = term + 1 })
		h.eventually("the report is stored",
			h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == term+1 }))
	}
	h.eventually("each report has signaled a change", func() bool { return h.countChanges("ledger-0", "ledger") == 40 })
}

// Of an agent that reports all the time, the operator handles a report now and then, and finally the last one.
func TestFloodOfReportsIsThrottled(t *testing.T) {
	h := newHarness(t)
	began := time.Now()
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	const reports = 5000
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nevent: current\ndata: {}\n\n")
		for term := range reports {
			_, _ = fmt.Fprintf(conn, "event: group\ndata: {\"group\":\"ledger\",\"uid\":\"u\",\"term\":%d}\n\n", term+1)
			if term%100 == 0 {
				_, _ = io.WriteString(conn, "event: left\ndata: {\"group\":\"audit\"}\n\n")
			}
		}
		<-t.Context().Done()
	})
	must.Succeed(t, err)
	h.follow("ledger-0", "1", "10.0.0.1")
	seen := map[uint64]bool{}
	h.eventually("the last report is stored", h.reports("ledger", "ledger-0", func(r control.Report) bool {
		seen[r.Term] = true
		return r.Term == reports
	}))
	most := agents.ReportBurst(2) + int(agents.ReportRate*time.Since(began).Seconds()) + 2
	expect.AtMostf(t, h.countChanges("ledger-0", "ledger")+h.countChanges("ledger-0", "audit"), most, "changes")
	expect.AtMostf(t, len(seen), most, "different reports in the store")
}

// When a connection ends, the last report is stored although it exceeds the limit.
func TestThrottledReportIsStoredWhenConnectionEnds(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	var ended atomic.Bool
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		if ended.Swap(true) {
			return
		}
		stream := "HTTP/1.1 200 OK\r\n\r\nevent: current\ndata: {}\n\n"
		for term := range 200 {
			stream += fmt.Sprintf("event: group\ndata: {\"group\":\"ledger\",\"uid\":\"u\",\"term\":%d}\n\n", term+1)
		}
		_, _ = io.WriteString(conn, stream)
	})
	must.Succeed(t, err)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the last report is stored",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 200 }))
}

// Each event current would trigger a reconcile of all groups of the agent.
func TestSecondCurrentEventEndsTheConnection(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil || request.URL.Path != control.ReportsPath {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		for {
			if _, err := io.WriteString(conn, "event: current\ndata: {\"groups\":[\"ledger\"]}\n\n"); err != nil {
				return
			}
		}
	})
	must.Succeed(t, err)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the connection has its problem", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return connection.Problem == "invalid event current: received twice on one connection"
	})
}

// The identity of a state directory gets into the status, whose schema refuses another one as a whole.
func TestInvalidIdentityEndsTheConnection(t *testing.T) {
	h := newHarness(t)
	h.run(h.newAgentOf(fakeagent.Identity{
		Namespace: "bank", Pod: "ledger-0", Groups: []string{"ledger"}, Address: "10.0.0.1:7375", State: "A0B1C2D3E4F56789",
	}))
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the connection has its problem", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return strings.HasPrefix(connection.Problem, "invalid event current: identity: must have 16 hexadecimal digits")
	})
}

// An agent that sends without pause takes a bounded part of the operator's time.
func TestContinuousStreamIsReadSlowly(t *testing.T) {
	h := &harness{certificates: newCertificates(t)}
	const buffer = 64 << 10
	h.start(t, agents.Options{Credentials: h.certificates, Log: logr.Discard(), Dial: func(ctx context.Context,
		network, address string,
	) (net.Conn, error) {
		conn, err := h.network.Dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(buffer)
		}
		return conn, err
	}})
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
	const enough = agents.ByteBurst + 3<<19
	began, written := time.Now(), make(chan int, 1)
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		raw := conn
		for {
			wrapper, ok := raw.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			raw = wrapper.NetConn()
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(buffer)
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		line, sent := ":"+strings.Repeat("a", 1000)+"\n", 0
		for sent < enough {
			n, err := io.WriteString(conn, line)
			if sent += n; err != nil {
				break
			}
		}
		written <- sent
	})
	must.Succeed(t, err)
	h.follow("ledger-0", "1", "10.0.0.1")
	sent := <-written
	if most := agents.ByteBurst + int(agents.ByteRate*time.Since(began).Seconds()) + 1<<20; sent < enough || sent > most {
		t.Errorf("got %d bytes read, want at most %d", sent, most)
	}
}

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
	h.eventually("the agent's new report is stored",
		h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 8 }))
	h.eventually("the report on a group that the agent isn't in anymore is removed",
		func() bool { return len(h.Reports(key("audit"))) == 0 })
	h.Forget(key("ledger-0"))
	expect.Equalf(t, len(h.Reports(key("ledger"))), 0, "report of a pod that was forgotten")
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
	first := h.ConnectedSince(key("ledger-0"))
	h.network.Cut("10.0.0.2:7375")
	h.eventually("ledger-1 isn't connected", func() bool {
		h.Verify(key("ledger-1"))
		return !h.connected("ledger-1")()
	})
	h.eventually("ledger-0 is connected again", func() bool {
		h.Verify(key("ledger-0")) // At first, its connection isn't stable yet.
		return h.connected("ledger-0")() && h.ConnectedSince(key("ledger-0")) != first
	})
	second := h.ConnectedSince(key("ledger-0"))
	stable := func() bool { return time.Since(second) > 2*time.Second }
	h.eventually("the connection to ledger-0 is stable", stable)
	h.Verify(key("ledger-0")) // It is too soon.
	h.Verify(key("stranger"))
	h.mu.Lock()
	defer h.mu.Unlock()
	expect.Equalf(t, h.ConnectedSince(key("ledger-0")), second, "start of the connection (no further one)")
	expect.Equalf(t, h.disconnected["ledger-0"], false, "got a signal that ledger-0 isn't connected")
}
