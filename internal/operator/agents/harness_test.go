package agents_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// harness runs an operator's Streams, with a network of fake agents.
type harness struct {
	*agents.Streams
	t            testing.TB
	certificates *fakeagent.CertificateFactory
	network      fakeagent.Network

	changed chan struct{}
	mu      sync.Mutex
	// changes are all calls of Options.Changed; disconnected are the pods whose agents weren't connected at one of them.
	changes      []string
	disconnected map[string]bool
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{certificates: newCertificates(t)}
	return h.start(t, agents.Options{Credentials: h.certificates, Dial: h.network.Dial, Log: logr.Discard()})
}

func newCertificates(t testing.TB) *fakeagent.CertificateFactory {
	t.Helper()
	certificates, err := fakeagent.NewCertificateFactory()
	must.Succeed(t, err)
	return certificates
}

func newHarnessWith(t testing.TB, options agents.Options) *harness {
	t.Helper()
	return (&harness{}).start(t, options)
}

func (h *harness) start(t testing.TB, options agents.Options) *harness {
	t.Helper()
	options.Changed = h.onChanged
	h.t, h.changed, h.disconnected, h.Streams = t, make(chan struct{}, 1), map[string]bool{}, agents.New(options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

func (h *harness) onChanged(pod types.NamespacedName, group string) {
	connection, _ := h.Connection(pod)
	h.mu.Lock()
	h.changes = append(h.changes, pod.Name+"/"+group)
	h.disconnected[pod.Name] = h.disconnected[pod.Name] || !connection.Connected && group == ""
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// countChanges returns how many changes of a pod's report on a group were signaled.
func (h *harness) countChanges(pod, group string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, change := range h.changes {
		if change == pod+"/"+group {
			count++
		}
	}
	return count
}

// eventually waits until a condition holds. It checks the condition after each change.
func (h *harness) eventually(what string, holds func() bool) {
	h.t.Helper()
	timeout := time.After(testwait.Limit)
	for !holds() {
		select {
		case <-h.changed:
		case <-time.After(5 * time.Millisecond):
		case <-timeout:
			h.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// newAgent returns an agent that doesn't run yet.
func (h *harness) newAgent(pod, ip string, groups ...string) *fakeagent.Agent {
	h.t.Helper()
	return h.newAgentIn(types.NamespacedName{Namespace: "bank", Name: pod}, ip, groups...)
}

func (h *harness) newAgentIn(pod types.NamespacedName, ip string, groups ...string) *fakeagent.Agent {
	h.t.Helper()
	return h.newAgentOf(fakeagent.Identity{Namespace: pod.Namespace, Pod: pod.Name, Groups: groups, Address: ip + ":7375"})
}

func (h *harness) newAgentOf(of fakeagent.Identity) *fakeagent.Agent {
	h.t.Helper()
	of.Network = &h.network
	a, err := fakeagent.New(of, h.certificates)
	must.Succeed(h.t, err)
	h.t.Cleanup(func() { h.stop(a) })
	return a
}

func (h *harness) run(a *fakeagent.Agent) {
	h.t.Helper()
	must.Succeed(h.t, a.Run(h.t.Context()))
}

// runConnected runs the agent of ledger-0, follows that pod, and waits until they are connected.
func (h *harness) runConnected(a *fakeagent.Agent, uid string) {
	h.t.Helper()
	h.run(a)
	h.follow("ledger-0", uid, "10.0.0.1")
	h.eventually("ledger-0 is connected", h.connected("ledger-0"))
}

func (h *harness) stop(a *fakeagent.Agent) {
	h.t.Helper()
	expect.Succeed(h.t, a.Stop())
}

// setReport replaces an agent's report on a group.
func setReport(a *fakeagent.Agent, report control.Report) {
	a.ChangeReport(report.Group, func(r *control.Report) {
		report.Pod = r.Pod
		*r = report
	})
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "bank", Name: name}
}

func (h *harness) follow(pod, uid, ip string) {
	h.Follow(agents.Agent{Pod: key(pod), UID: types.UID(uid), Address: ip + ":7375"}, 0)
}

func (h *harness) connected(pod string) func() bool {
	return func() bool {
		connection, ok := h.Connection(key(pod))
		return ok && connection.Connected
	}
}

func (h *harness) reports(group, pod string, matches func(control.Report) bool) func() bool {
	return func() bool {
		report, ok := h.Reports(key(group))[pod]
		return ok && matches(*report)
	}
}
