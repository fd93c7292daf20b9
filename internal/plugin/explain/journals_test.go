package explain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
	"github.com/conclave-dev/conclave/internal/transcript"
)

func TestJournalsThatCannotBeReadAreMissing(t *testing.T) {
	g := pluginenv.JournalGroup()
	g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: "conclave-witness-0"})
	journals, missing := ReadJournals(t.Context(), g, pluginenv.ForwardToAgents(t))
	if len(journals) != 1 || journals[0].Agent != "ledger-0" {
		t.Errorf("got journals %+v, want that of ledger-0", journals)
	}
	want := []transcript.Missing{
		{Agent: "conclave-witness-0", Reason: "it is a pod of the operator, which only votes"},
		{Agent: "ledger-1", Reason: `path "/v1/groups/ledger/journal" not found`},
		{Agent: "ledger-2", Reason: `its agent is newer than this plugin, which doesn't know "surprise": update the plugin`},
		{Agent: "ledger-3", Reason: "the agent has left the group"},
		{Agent: "ledger-4", Reason: `pods "ledger-4" not found`},
	}
	expect.Equalf(t, fmt.Sprint(missing), fmt.Sprint(want), "missing journals")
}

func TestExplainNamesTheTermsOfTheJournals(t *testing.T) {
	_, err := Elections(t.Context(), pluginenv.JournalGroup(), 8, 1, pluginenv.ForwardToAgents(t))
	if want := "the agents' journals have no election in term 8; the latest terms are 6, 7"; err == nil ||
		err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 7, 10, pluginenv.ForwardToAgents(t)); err != nil ||
		len(e) != 1 || e[0].Term != 7 || len(e[0].Missing) != 4 {
		t.Errorf("got %+v, %v, want only the election in term 7", e, err)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 0, 10, pluginenv.ForwardToAgents(t)); err != nil ||
		len(e) != 2 || e[0].Term != 7 || e[1].Term != 6 {
		t.Errorf("got %+v, %v, want both elections, the newest first", e, err)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 0, 1, pluginenv.ForwardToAgents(t)); err != nil ||
		len(e) != 1 || e[0].Term != 7 {
		t.Errorf("got %+v, %v, want only the last election", e, err)
	}
}

// TestSessionsOfTheCoordinator: only its agent knows them.
func TestSessionsOfTheCoordinator(t *testing.T) {
	g := &v1.ElectionGroup{}
	g.Name, g.Namespace = "ledger", "bank"
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2"}
	for answer, want := range map[string]string{
		`{"sessions":[{"leads":true,"openedAt":"2026-11-20T12:37:12.5Z","renewedAt":"2026-11-20T12:38:12Z","renewedMillisAgo":240},{"leads":false,"openedAt":"2026-11-20T12:40:00Z"}]}`: "A session of ledger-2 leads, opened 2026-11-20 12:37:12 UTC, last renewed 0.2 s ago.\n" +
			"A session of ledger-2 waits, opened 2026-11-20 12:40:00 UTC, never renewed.",
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
		got := strings.Join(
			sessions(t.Context(), g, func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
				expect.Equalf(t, pod.String(), "bank/ledger-2", "pod of the request")
				return portforward.At(agent.URL, ""), nil
			}), "\n")
		agent.Close()
		expect.Equal(t, got, want)
	}
}

// TestGatherJournals: journals and failures are in the order of the pods, and a journal in another
// name or about another group is missing.
func TestGatherJournals(t *testing.T) {
	answers := map[string]*journal.Journal{
		"ledger-0": {Agent: "ledger-0", Group: "ledger"},
		"ledger-1": {Agent: "ledger-0", Group: "ledger"},
		"ledger-2": {Agent: "ledger-2", Group: "other"},
		"ledger-4": {Agent: "ledger-4", Group: "ledger"},
	}
	pods := []string{"ledger-4", "ledger-3", "ledger-2", "ledger-1", "ledger-0"}
	for i := range 50 {
		pod := fmt.Sprintf("further-%d", i)
		pods = append(pods, pod)
		answers[pod] = &journal.Journal{Agent: pod, Group: "ledger"}
	}
	journals, missing := gatherJournals(t.Context(), "ledger", pods,
		func(_ context.Context, pod string) (*journal.Journal, error) {
			if answers[pod] == nil {
				return nil, errors.New("no answer")
			}
			return answers[pod], nil
		})
	wantMissing := []transcript.Missing{
		{Agent: "ledger-3", Reason: "no answer"},
		{Agent: "ledger-2", Reason: `its journal is that of "ledger-2" in group "other"`},
		{Agent: "ledger-1", Reason: `its journal is that of "ledger-0" in group "ledger"`},
	}
	expect.DeepEqualf(t, missing, wantMissing, "missing")
	var got []string
	for i := range journals {
		got = append(got, journals[i].Agent)
	}
	expect.DeepEqualf(t, got, append([]string{"ledger-4", "ledger-0"}, pods[5:]...), "journals")
}
