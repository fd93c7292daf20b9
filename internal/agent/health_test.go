package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

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
	if _, err := ledger.RenewSession(t.Context(), session.ID()); err != nil {
		t.Fatal(err)
	}
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
