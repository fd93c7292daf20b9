package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// TestLastElection: the journals are read only for the user who started the server, for one
// group at a time, and not for a huge one.
func TestLastElection(t *testing.T) {
	store := dashboard.NewStore()
	small := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	huge := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "huge"}}
	huge.Status.Processes = make([]v1.Process, 51)
	failing := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "failing"}}
	store.Set(small)
	store.Set(huge)
	store.Set(failing)
	tenure := journal.Step{
		At: time.Unix(1000, 0), Input: "tick", Events: []journal.Event{{Kind: "tenure", Peer: "ledger-0", Term: 7}},
	}
	reads := 0
	actions := &dashboard.Actions{
		Key: dashboard.NewKey(),
		LastElection: func(_ context.Context, g *v1.ElectionGroup) (*transcript.Election, error) {
			reads++
			if g.Name == "failing" {
				return nil, errors.New("no agent could be reached")
			}
			j := journal.Journal{
				Group: "ledger", Agent: "ledger-0", Safety: "Majority", Members: []journal.Member{{Name: "ledger-0"}},
				Steps: []journal.Step{tenure},
			}
			return transcript.Merge([]journal.Journal{j}, 0), nil
		},
	}
	handler := dashboard.NewHandler(store, 7377, actions, "")
	for name, c := range map[string]struct {
		group, key string
		status     int
		text       string
	}{
		"the page": {"ledger", actions.Key, http.StatusOK, `"text":"ledger-0 was elected in term 7"`},
		"without the key": {
			"ledger", "", http.StatusForbidden, "open the address that kubectl conclave dashboard has printed",
		},
		"another key":      {"ledger", dashboard.NewKey(), http.StatusForbidden, "open the address"},
		"an unknown group": {"nothing", actions.Key, http.StatusNotFound, "there is no such group"},
		"a huge group": {
			"huge", actions.Key, http.StatusBadRequest,
			"the group has 51 members; the elections of up to 50 are shown here, and others by kubectl conclave explain",
		},
		"unreachable ones":  {"failing", actions.Key, http.StatusBadGateway, "no agent could be reached"},
		"an impatient user": {"ledger", actions.Key, http.StatusOK, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		before, wanted := reads, 0
		if c.status == http.StatusOK || c.status == http.StatusBadGateway {
			wanted = 1
		}
		if name == "an impatient user" {
			cancel()
			wanted = 0
		}
		request := httptest.NewRequestWithContext(ctx, http.MethodGet,
			"http://127.0.0.1:7377/actions/bank/"+c.group+"/last-election", http.NoBody)
		request.Header.Set("X-Conclave-Key", c.key)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		cancel()
		if recorder.Code != c.status || !strings.Contains(recorder.Body.String(), c.text) || reads-before != wanted {
			t.Errorf("%s: got status %d, %s and %d reads, want %d, %q and %d reads", name, recorder.Code, recorder.Body,
				reads-before, c.status, c.text, wanted)
		}
		if c.status == http.StatusOK && wanted > 0 {
			var answer struct {
				Members, Steps, Milestones, Missing []any
			}
			if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || len(answer.Members) != 1 ||
				len(answer.Steps) != 1 || answer.Missing == nil {
				t.Errorf("%s: got %s, %v, want a member, a step, and lists that are not null", name, recorder.Body, err)
			}
		}
	}
}
