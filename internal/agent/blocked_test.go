package agent

import (
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// blockingMetrics block the group when it receives a message, while block is locked.
type blockingMetrics struct {
	*metrics.Group

	block sync.Mutex
}

func (m *blockingMetrics) Received(kind election.Kind) {
	m.block.Lock()
	defer m.block.Unlock()
	m.Group.Received(kind)
}

// TestBlockedGroupAffectsNoOtherGroup: a peer sends more messages to a blocked group than
// the group can store. The agent continues to receive those for the other group, on the
// same connection. The blocked group still learns that the peer has ended.
func TestBlockedGroupAffectsNoOtherGroup(t *testing.T) {
	ledger, listeners := newGroup(t, 2, office.Available, "StatusTable")
	audit := ledger
	audit.Name = "audit"
	registry := metrics.New()
	blocking := &blockingMetrics{Group: registry.ForGroup("ledger")}
	options := testOptions(t, 2, t.TempDir(), listeners["b"])
	options.OnReport = func(control.Report) {}
	options.Metrics = func(name string) group.Metrics {
		if name == "ledger" {
			return blocking
		}
		return registry.ForGroup(name)
	}
	b := startWith(t, "b", options, ledger, audit)
	h := &testAgent{b, t, listeners["b"].Addr().String(), registry}
	peer := connectHostile(t, h)
	peer.lastBeat = peer.receive(func(m *wire.Message) bool { return m.Group == "ledger" })
	blocking.block.Lock()
	unblock := sync.OnceFunc(blocking.block.Unlock)
	defer unblock()
	must.Succeed(t, peer.SetWriteDeadline(time.Now().Add(testwait.Limit)))
	for range 1500 { // The group can store 1024. Many more would delay what follows them on the connection.
		peer.write(peer.message(func(m *wire.Message) { m.Kind, m.Subject = election.Probe, "" }))
	}
	testwait.Until(t, "messages are dropped", func() bool { return h.counter("conclave_messages_dropped_total") > 0 })
	before := h.counterOf("audit", "conclave_messages_refused_total")
	peer.write(peer.message(func(m *wire.Message) { m.Group, m.Kind = "audit", 99 }))
	testwait.Until(t, "the other group receives a message", func() bool {
		return h.counterOf("audit", "conclave_messages_refused_total") > before
	})
	done := make(chan struct{})
	go func() {
		b.PeerEnded("a", peer.life)
		b.Refresh()
		close(done)
	}()
	testwait.Receive(t, "the return of PeerEnded and Refresh", done)
	unblock()
	g, _ := b.Find("ledger")
	testwait.Until(t, "the blocked group knows that the peer has ended", func() bool {
		status, err := g.Status(t.Context())
		must.Succeed(t, err)
		return status.Processes[len(status.Processes)-1].Status == "Crashed"
	})
}
