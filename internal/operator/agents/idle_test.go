package agents_test

import (
	"bufio"
	"fmt"
	"io"
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
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
