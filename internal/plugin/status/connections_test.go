package status

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestConnections: each agent is asked, and each number is in its column.
func TestConnections(t *testing.T) {
	agents := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(map[string]string{ // The client sees an error.
			"/ledger-2/v1/groups/ledger/status": `{"connections":{"open":12,"waiting":3,"waitedInVain":4,"reset":5,` +
				`"refused":6,"failedDials":700}}`,
			"/ledger-1/v1/groups/ledger/status": `{"term":7}`,
		}[r.URL.Path]))
	}))
	defer agents.Close()
	g := &v1.ElectionGroup{}
	g.Name, g.Namespace = "ledger", "bank"
	g.Status.Processes = []v1.Process{{Pod: "ledger-2"}, {Pod: "ledger-1"}, {Pod: "ledger-0"}, {Pod: "conclave-witness-0"}}
	var text strings.Builder
	describe.WriteConnections(&text, Connections(t.Context(), g,
		func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
			if pod.String() == "bank/ledger-0" {
				return nil, errors.New(`unable to upgrade connection: pods "ledger-0" not found`)
			}
			return portforward.At(agents.URL+"/"+pod.Name, ""), nil
		}))
	expect.Equal(t, text.String(), `CONNECTIONS AT      OPEN  WAITING  WAITED IN VAIN  RESET  REFUSED  FAILED DIALS
ledger-2            12    3        4               5      6        700
ledger-1            its agent carries none
ledger-0            pods "ledger-0" not found
conclave-witness-0  its agent carries none
`)
}
