package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// blockInReport returns a function that blocks a group of an agent with these options, in a report.
func blockInReport(t *testing.T, options *Options, name string) (block func(*Agent) (unblock func())) {
	var mu sync.Mutex
	blocked := make(chan struct{}, 1)
	options.OnReport = func(r control.Report) {
		if r.Group != name {
			return
		}
		if !mu.TryLock() {
			select {
			case blocked <- struct{}{}:
			default:
			}
			mu.Lock()
		}
		mu.Unlock()
	}
	return func(a *Agent) func() {
		t.Helper()
		mu.Lock()
		joined, _ := a.Find(name)
		go joined.ReportProbe(t.Context(), false) //nolint:errcheck // It only causes a report.
		testwait.Receive(t, "a report that blocks the group", blocked)
		return sync.OnceFunc(mu.Unlock)
	}
}

// TestBlockedGroupAffectsNoOtherGroup: a peer sends more messages to a blocked group than
// the group can store. The agent continues to receive those for the other group, on the
// same connection. The blocked group still learns that the peer has ended.
func TestBlockedGroupAffectsNoOtherGroup(t *testing.T) {
	ledger, listeners := newGroup(t, 2, office.Available, "StatusTable")
	audit := ledger
	audit.Name = "audit"
	options := testOptions(t, 2, t.TempDir(), listeners["b"])
	block := blockInReport(t, &options, "ledger")
	b := startWith(t, "b", options, ledger, audit)
	h := &testAgent{b, t, listeners["b"].Addr().String()}
	peer := connectHostile(t, h)
	peer.lastBeat = peer.receive(func(m *wire.Message) bool { return m.Group == "ledger" })
	unblock := block(b)
	defer unblock()
	must.Succeed(t, peer.SetWriteDeadline(time.Now().Add(testwait.Limit)))
	const sent, stored = 1500, 1024 // Many more would delay what follows them on the connection.
	for range sent {
		peer.write(peer.message(func(m *wire.Message) { m.Kind, m.Subject = election.Probe, "" }))
	}
	testwait.Until(t, "messages are dropped", func() bool { return h.counter("conclave_messages_dropped_total") > 0 })
	before := h.counterOf("audit", "conclave_messages_refused_total")
	peer.write(peer.message(func(m *wire.Message) { m.Group, m.Kind = "audit", 99 }))
	testwait.Until(t, "the other group receives a message", func() bool {
		return h.counterOf("audit", "conclave_messages_refused_total") > before
	})
	expect.AtMostf(t, h.counter("conclave_messages_dropped_total"), sent-stored+100, "dropped messages")
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

// TestBlockedDiskDoesNotPreventHandover: a coordinator is terminated while a change of a
// group, and a task, wait for a disk that doesn't respond. The others learn that it was stopped.
func TestBlockedDiskDoesNotPreventHandover(t *testing.T) {
	agents := startAgents(t, 3, office.Majority, "StatusTable")
	awaitCoordinator(t, agents, "c")
	c := agents["c"]
	c.applying.RLock() // As ApplyGroup does while it stores a list.
	defer c.applying.RUnlock()
	local, err := ListenLocalAPI(t.Context(), "127.0.0.1:0")
	must.Succeed(t, err)
	unblock := make(chan struct{})
	defer close(unblock)
	process := &Process{
		LocalAPI: local, Groups: c.Local(), Metrics: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
		Start: func(context.Context) (*Started, error) {
			return &Started{Agent: c, Tasks: []func(context.Context){func(context.Context) { <-unblock }}}, nil
		},
	}
	ctx, terminate := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	terminate()
	expect.Succeed(t, testwait.Receive(t, "the end of the process", ended))
	delete(agents, "c")
	awaitCoordinator(t, agents, "b")
	ledger, _ := agents["b"].Find("ledger")
	recorded, err := ledger.Journal(t.Context())
	must.Succeed(t, err)
	if !slices.ContainsFunc(recorded.Steps, func(s journal.Step) bool { return s.Cause == control.EndStopped }) {
		t.Errorf("got journal %+v, want a step with the cause %s", recorded.Steps, control.EndStopped)
	}
}

// blockingLog blocks while block is locked, as a log does that isn't asynchronous.
type blockingLog struct{ block sync.Mutex }

func (b *blockingLog) Write(text []byte) (int, error) {
	b.block.Lock()
	defer b.block.Unlock()
	return io.Discard.Write(text)
}

// TestHealthzReportsBlockedGroup: the event loop of a group is blocked, in its log.
func TestHealthzReportsBlockedGroup(t *testing.T) {
	log := &blockingLog{}
	g, listeners := newGroup(t, 1, 0, "StatusTable")
	options := testOptions(t, 1, t.TempDir(), listeners["a"])
	options.Log = slog.New(slog.NewTextHandler(log, nil))
	agent := startWith(t, "a", options, g)
	awaitCoordinator(t, map[string]*Agent{"a": agent}, "a")
	handler := api.New(agent.Local(), nil)
	healthz := func() (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
		return w.Code, w.Body.String()
	}
	if code, text := healthz(); code != http.StatusOK {
		t.Fatalf("got %d %s, want 200", code, text)
	}
	log.block.Lock()
	ledger, _ := agent.Find("ledger")
	session, err := ledger.OpenSession(t.Context(), false)
	must.Succeed(t, err)
	_, err = ledger.RenewSession(t.Context(), session.ID())
	must.Succeed(t, err)
	session.Close() // The group gives up the office, and logs that.
	testwait.Until(t, "/healthz reports the group", func() bool {
		code, text := healthz()
		return code == http.StatusServiceUnavailable && strings.HasPrefix(text, "group ledger: the event loop didn't respond")
	})
	log.block.Unlock()
	testwait.Until(t, "/healthz succeeds again", func() bool {
		code, _ := healthz()
		return code == http.StatusOK
	})
}
