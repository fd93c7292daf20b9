package pluginenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// JournalGroup is a group of four, whose agents respond in different ways.
func JournalGroup() *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	for i := 4; i >= 0; i-- {
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: fmt.Sprint("ledger-", i)})
	}
	return g
}

// ForwardToAgents reaches an agent with a journal, an old one, a newer one and one without the
// group; and one isn't reachable.
func ForwardToAgents(t *testing.T) clusteraccess.PortForwarder {
	t.Helper()
	found := journal.Journal{Group: "ledger", Agent: "ledger-0", Steps: []journal.Step{
		{At: time.Now(), Input: "tick", Events: []journal.Event{{Kind: "tenure", Peer: "ledger-0", Term: 6}}},
		{At: time.Now(), Input: "tick", Events: []journal.Event{{Kind: "tenure", Peer: "ledger-0", Term: 7}}},
	}}
	newer := journal.Journal{Group: "ledger", Agent: "ledger-2", Steps: []journal.Step{{Input: "surprise"}}}
	answers := map[string]struct {
		status int
		body   any
	}{
		"ledger-0": {http.StatusOK, found},
		"ledger-1": {http.StatusNotFound, map[string]string{"error": `path "/v1/groups/ledger/journal" not found`}},
		"ledger-2": {http.StatusOK, newer},
		"ledger-3": {http.StatusServiceUnavailable, map[string]string{"error": "the agent has left the group"}},
	}
	agents := http.NewServeMux()
	agents.HandleFunc("GET /{pod}/v1/groups/ledger/journal", func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.PathValue("pod")]
		w.WriteHeader(answer.status)
		expect.Succeed(t, json.NewEncoder(w).Encode(answer.body))
	})
	server := httptest.NewServer(agents)
	t.Cleanup(server.Close)
	return func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		if _, reachable := answers[pod.Name]; !reachable || pod.Namespace != "bank" {
			return nil, errors.New(`cannot forward a port to pod bank/ledger-4: error upgrading connection: unable to upgrade ` +
				`connection: pods "ledger-4" not found`)
		}
		return portforward.At(server.URL+"/"+pod.Name, ""), nil
	}
}
