package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// journalGroup is a group of four, whose agents respond in different ways.
func journalGroup() *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	for i := 4; i >= 0; i-- {
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: fmt.Sprint("ledger-", i)})
	}
	return g
}

// forwardToAgents reaches an agent with a journal, an old one, a newer one and one without the
// group; and one isn't reachable.
func forwardToAgents(t *testing.T) portForwarder {
	t.Helper()
	found := journal.Journal{Group: "ledger", Agent: "ledger-0", Steps: []journal.Step{
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
		if err := json.NewEncoder(w).Encode(answer.body); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(agents)
	t.Cleanup(server.Close)
	return func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		if _, reachable := answers[pod.Name]; !reachable || pod.Namespace != "bank" {
			return nil, errors.New(`cannot forward a port to pod bank/ledger-4: error upgrading connection: unable to upgrade connection: pods "ledger-4" not found`)
		}
		return portforward.At(server.URL+"/"+pod.Name, ""), nil
	}
}

func TestJournalsThatCannotBeReadAreMissing(t *testing.T) {
	journals, missing := readJournals(t.Context(), journalGroup(), forwardToAgents(t))
	if len(journals) != 1 || journals[0].Agent != "ledger-0" {
		t.Errorf("got journals %+v, want that of ledger-0", journals)
	}
	want := []transcript.Missing{
		{Agent: "ledger-1", Reason: "its agent is too old to keep a journal: create the pod again"},
		{Agent: "ledger-2", Reason: `its agent is newer than this plugin, which doesn't know "surprise": update the plugin`},
		{Agent: "ledger-3", Reason: "the agent has left the group"},
		{Agent: "ledger-4", Reason: `pods "ledger-4" not found`},
	}
	if fmt.Sprint(missing) != fmt.Sprint(want) {
		t.Errorf("got missing journals %v, want %v", missing, want)
	}
}

func TestExplainNamesTheTermsOfTheJournals(t *testing.T) {
	_, err := readElection(t.Context(), journalGroup(), 8, forwardToAgents(t))
	if want := "the agents' journals have no election in term 8; the latest terms are 7"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if e, err := readElection(t.Context(), journalGroup(), 7, forwardToAgents(t)); err != nil || e.Coordinator != "ledger-0" || len(e.Missing) != 4 {
		t.Errorf("got %+v, %v, want the election in term 7", e, err)
	}
}

// Without the permission to forward ports, explain prints what the status contains, and one
// line about what is missing.
func TestExplainWithoutPortForwarding(t *testing.T) {
	e := newEnv(t)
	e.createGroup(t, "ledger")
	const user = "viewer@example.org"
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "viewer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1.GroupVersion.Group}, Resources: []string{"electiongroups"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if err := errors.Join(e.Create(t.Context(), role), e.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	const reason = "reading the agents' journals requires the permission to create pods/portforward in namespace bank"
	got := e.runCommand(t, "explain", "ledger", "--as", user)
	if want := "\n\nLast election\n  Not shown: " + reason + ".\n"; got.status != 0 || !strings.HasPrefix(got.stdout, "Coordinator\n  ledger-2 has been") || !strings.HasSuffix(got.stdout, want) {
		t.Errorf("got %+v, want the explanation and at its end %s", got, want)
	}
	got = e.runCommand(t, "explain", "ledger", "-o", "json", "--as", user)
	if want := "the transcript of the last election is missing: " + reason + "\n"; got.status != 0 || got.stderr != want || !strings.Contains(got.stdout, `"coordinator":{`) {
		t.Errorf("got %+v, want the facts and on stderr %s", got, want)
	}
	for _, flag := range []string{"--term=7", "--output=mermaid"} {
		if got := e.runCommand(t, "explain", "ledger", flag, "--as", user); got.status != 1 || got.stdout != "" || got.stderr != "error: "+reason+"\n" {
			t.Errorf("%s: got %+v, want only the error %s", flag, got, reason)
		}
	}
}
