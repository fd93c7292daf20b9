package streams_test

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

	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// crowd is the variable that has this program be so many agents, whose memory
// isn't the operator's.
const crowd = "CONCLAVE_TEST_CROWD"

// idleAgents is how many streams are measured.
const idleAgents = 2000

// TestCrowd isn't a test: it is the other process of BenchmarkIdleStream.
func TestCrowd(t *testing.T) {
	folder := os.Getenv(crowd)
	if folder == "" {
		t.Skip("this is the other side of a benchmark")
	}
	s := &stand{t: t, wardrobe: newWardrobe(t)}
	keep(t, s.wardrobe, folder)
	for i := range idleAgents {
		ip := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		a := s.agent(podName(i), ip, "ledger")
		report := control.Report{Group: "ledger", UID: "0b9a6c1e-8c59-4c4e-9d5e-1d4e5a6b7c8d", Version: 1, Digest: "0123456789abcdef", Coordinator: podName(1), Term: 7}
		for m := range 5 {
			report.Processes = append(report.Processes, control.Row{Name: podName(m), Priority: uint32(m), Status: "Normal", Connected: true})
		}
		say(a, report)
		s.run(a)
		fmt.Println("agent", s.network.Resolve(ip+":7375"))
	}
	// Until the benchmark is over.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// keep writes the operator's certificate to a folder, for another process.
func keep(t *testing.T, wardrobe *fakeagent.CertificateFactory, folder string) {
	t.Helper()
	pair, err := wardrobe.Authority.Issue(identity.Names{control.Operator}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"cert": pair.Cert, "key": pair.Key, "ca": wardrobe.Authorities} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func podName(i int) string { return fmt.Sprintf("ledger-%d", i) }

func BenchmarkIdleStream(b *testing.B) {
	folder := b.TempDir()
	other := exec.Command(os.Args[0], "-test.run=^TestCrowd$", "-test.timeout=5m")
	other.Env = append(os.Environ(), crowd+"="+folder)
	stdin, err := other.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := other.Start(); err != nil {
		b.Fatal(err)
	}
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
		b.Fatal("the agents' process has ended")
	}
	files, err := identity.Open(identity.Paths{
		Cert: filepath.Join(folder, "cert"), Key: filepath.Join(folder, "key"), CA: filepath.Join(folder, "ca"),
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		measure(b, files, addresses)
	}
}

func measure(b *testing.B, files *identity.Files, addresses []string) {
	before := memory()
	s := newStandWith(b, streams.Options{Credentials: files, Log: logr.Discard()})
	for i, address := range addresses {
		s.Follow(streams.Agent{Pod: named(podName(i)), UID: types.UID(fmt.Sprint(i)), Address: address}, 0)
	}
	s.await("all are connected", func() bool { return s.Connected() == len(addresses) })
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
