package explain

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestSessionsOfTheCoordinator: only its agent knows them.
func TestSessionsOfTheCoordinator(t *testing.T) {
	g := &v1.ElectionGroup{}
	g.Name, g.Namespace = "ledger", "bank"
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2"}
	for answer, want := range map[string]string{
		`{"sessions":[{"leads":true,"openedAt":"2026-11-20T12:37:12.5Z","renewedAt":"2026-11-20T12:38:12Z","renewedMillisAgo":240},{"leads":false,"openedAt":"2026-11-20T12:40:00Z"}]}`: "A session of ledger-2 leads, opened 2026-11-20 12:37:12 UTC, last renewed 0.2 s ago.\n" +
			"A session of ledger-2 waits, opened 2026-11-20 12:40:00 UTC, never renewed.",
		`{"sessions":[{"leads":true,"openedAt":"2026-11-20T12:37:12Z","renewedAt":"2026-11-20T12:38:12Z"}]}`: "A session of ledger-2 leads, opened 2026-11-20 12:37:12 UTC, last renewed 2026-11-20 12:38:12 UTC.",
		`{}`: "ledger-2 has no open session: the agent doesn't know whether its application runs.",
		``:   "",
	} {
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer == "" || r.URL.Path != "/v1/groups/ledger/status" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(answer)) // The client sees an error.
		}))
		got := strings.Join(sessions(t.Context(), g, func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
			if pod.String() != "bank/ledger-2" {
				t.Errorf("got a request to %s, want one to the coordinator", pod)
			}
			return portforward.At(agent.URL, ""), nil
		}), "\n")
		agent.Close()
		expect.Equal(t, got, want)
	}
}
