package agents_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestReportsAreStored(t *testing.T) {
	h := newHarness(t)
	a := h.newAgent("ledger-0", "10.0.0.1", "ledger", "audit")
	setReport(a, control.Report{Group: "ledger", UID: "u", Version: 1, Coordinator: "ledger-2", Term: 7})
	h.run(a)
	h.follow("ledger-0", "pod-uid", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	if got := h.Reports(key("ledger"))["ledger-0"]; got.Report == nil || got.Report.Coordinator != "ledger-2" || got.UID != "pod-uid" {
		t.Fatalf("got %+v, want the initial report before the agent counts as connected", got)
	}
	a.ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-1", 8 })
	h.eventually("the changed report is stored", h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 8 }))
	got := h.Reports(key("ledger"))["ledger-0"]
	if got.LostAt.IsZero() || got.NamedAt.IsZero() || !got.AdoptedAt.Before(got.NamedAt) {
		t.Errorf("got %+v, want the earlier coordinator lost, and the list adopted before the coordinator was named", got)
	}
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
	if got, _ := h.Connection(key("ledger-0")); !got.Accepts("ledger") || got.Accepts("audit") {
		t.Errorf("got %+v, want a connection that accepts group ledger only", got)
	}
	h.eventually("the connection for ledger-1 is refused", func() bool {
		connection, _ := h.Connection(key("ledger-1"))
		return connection.Problem == "certificate must be for pod bank/ledger-1, got conclave://bank/ledger/ledger-0"
	})
}

func TestAgentWithoutCertificate(t *testing.T) {
	refused := map[string]string{"10.0.0.1": "no certificate"}
	h := newHarnessWith(t, agents.Options{
		Credentials: newCertificates(t), Dial: new(fakeagent.Network).Dial, Log: logr.Discard(), Refused: func(host string) string { return refused[host] },
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
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	h.stop(a)
	h.eventually("the connection has its problem", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return !connection.Connected && connection.Problem == "connection refused"
	})
	if h.Reports(key("ledger"))["ledger-0"].Report == nil {
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
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	first, _ := h.Connection(key("ledger-0"))
	h.eventually("the connection is stable", func() bool { return time.Since(first.Since) > 2*time.Second })
	a.CloseStreams()
	h.eventually("ledger-0 is connected again", func() bool {
		now, _ := h.Connection(key("ledger-0"))
		return now.Connected && now.Since != first.Since
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.disconnected["ledger-0"] {
		t.Error("got a signal that ledger-0 isn't connected, want none")
	}
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
	h.eventually("the new agent's report is stored", h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 2 }))
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
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
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
	if got := a.Calls()[4]; got.Path != "/v1/groups/ledger?uid=u&revision=4" {
		t.Errorf("got %v, want the command to leave", got)
	}
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
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
	h.Send(key("ledger-0"), agents.PushDocument("ledger", "u", 4, []byte(`{"uid":"u"}`)))
	h.eventually("the agent has accepted the document", func() bool { return len(a.Calls()) == 3 })
}

// A document goes to the pod for which it is: an address may by now be that of the next pod of the same name, which has no state.
func TestAgentOfAnotherPodIsRefused(t *testing.T) {
	h := newHarness(t)
	a := h.newAgentOf(fakeagent.Identity{Namespace: "bank", Pod: "ledger-0", UID: "2", Groups: []string{"ledger"}, Address: "10.0.0.1:7375"})
	h.run(a)
	h.follow("ledger-0", "1", "10.0.0.1")
	h.eventually("the operator says whose certificate it is", func() bool {
		connection, _ := h.Connection(key("ledger-0"))
		return connection.Problem == "certificate must be for the pod with UID 1, got 2"
	})
	h.follow("ledger-0", "2", "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
}

// agentsFolder is the environment variable that makes this test binary run agents in
// a process of their own: the benchmark measures the operator's memory only.
const agentsFolder = "CONCLAVE_TEST_AGENTS_FOLDER"

// idleAgents is the number of streams to measure.
const idleAgents = 2000

// TestIdleAgents isn't a test: it runs the agents of BenchmarkIdleStream.
func TestIdleAgents(t *testing.T) {
	folder := os.Getenv(agentsFolder)
	if folder == "" {
		t.Skip("this runs the agents of BenchmarkIdleStream")
	}
	h := &harness{t: t, certificates: newCertificates(t)}
	writeOperatorCertificate(t, h.certificates, folder)
	for i := range idleAgents {
		ip := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		a := h.newAgent(podName(i), ip, "ledger")
		report := control.Report{Group: "ledger", UID: "0b9a6c1e-8c59-4c4e-9d5e-1d4e5a6b7c8d", Version: 1, Digest: "0123456789abcdef", Coordinator: podName(1), Term: 7}
		for m := range 5 {
			report.Processes = append(report.Processes, control.Row{Name: podName(m), Priority: uint32(m), Status: "Normal", Connected: true})
		}
		setReport(a, report)
		h.run(a)
		fmt.Println("agent", h.network.Resolve(ip+":7375"))
	}
	// Until the benchmark is over.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// writeOperatorCertificate writes the operator's certificate to a folder, for another
// process.
func writeOperatorCertificate(t *testing.T, certificates *fakeagent.CertificateFactory, folder string) {
	t.Helper()
	pair, err := certificates.Authority.Issue(identity.Names{control.Operator}, time.Hour)
	must.Succeed(t, err)
	for name, text := range map[string][]byte{"cert": pair.Cert, "key": pair.Key, "ca": certificates.Authorities} {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
}

func podName(i int) string { return fmt.Sprintf("ledger-%d", i) }

func BenchmarkIdleStream(b *testing.B) {
	folder := b.TempDir()
	other := exec.Command(os.Args[0], "-test.run=^TestIdleAgents$", "-test.timeout=5m")
	other.Env = append(os.Environ(), agentsFolder+"="+folder)
	stdin, err := other.StdinPipe()
	must.Succeed(b, err)
	stdout, err := other.StdoutPipe()
	must.Succeed(b, err)
	must.Succeed(b, other.Start())
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = other.Wait()
	})
	var addresses []string
	for lines := bufio.NewScanner(stdout); len(addresses) < idleAgents && lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "agent "); ok {
			addresses = append(addresses, address)
		}
	}
	if len(addresses) < idleAgents {
		b.Fatal("the process of the agents has ended")
	}
	files, err := identity.Open(identity.Paths{
		Cert: filepath.Join(folder, "cert"), Key: filepath.Join(folder, "key"), CA: filepath.Join(folder, "ca"),
	}, nil)
	must.Succeed(b, err)
	for b.Loop() {
		measure(b, files, addresses)
	}
}

func measure(b *testing.B, files *identity.Files, addresses []string) {
	before := memory()
	h := newHarnessWith(b, agents.Options{Credentials: files, Log: logr.Discard()})
	for i, address := range addresses {
		h.Follow(agents.Agent{Pod: key(podName(i)), UID: types.UID(fmt.Sprint(i)), Address: address}, 0)
	}
	h.eventually("all agents are connected", func() bool { return h.Connected()["fakeagent"] == len(addresses) })
	after := memory()
	b.ReportMetric(float64(after.heap-before.heap)/float64(len(addresses)), "heap-B/stream")
	b.ReportMetric(float64(after.stacks-before.stacks)/float64(len(addresses)), "stack-B/stream")
	b.ReportMetric(float64(after.all-before.all)/float64(len(addresses)), "from-system-B/stream")
}

type usage struct{ heap, stacks, all int64 }

func memory() usage {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{int64(m.HeapAlloc), int64(m.StackInuse), int64(m.Sys - m.HeapReleased)}
}
