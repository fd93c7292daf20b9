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
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// TestConnections: agents are asked only for the user who started the server.
func TestConnections(t *testing.T) {
	store := dashboard.NewStore()
	store.Set(&v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}})
	actions := &dashboard.Actions{
		Key: dashboard.NewKey(),
		Connections: func(context.Context, *v1.ElectionGroup) []describe.Connections {
			return []describe.Connections{
				{Pod: "ledger-1", Connections: &control.Connections{Open: 3, Refused: 4}}, {Pod: "ledger-0", Missing: "none"},
			}
		},
	}
	handler := dashboard.NewHandler(store, 7377, actions, "")
	for _, c := range []struct{ group, key, want string }{
		{"ledger", actions.Key, `{"rows":[{"pod":"ledger-1","open":3,"waiting":0,"waitedInVain":0,"reset":0,"refused":4,` +
			`"failedDials":0},{"pod":"ledger-0","missing":"none"}]}`},
		{"ledger", dashboard.NewKey(), `{"error":"open the address that kubectl conclave dashboard has printed"}`},
		{"nothing", actions.Key, `{"error":"there is no such group"}`},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://127.0.0.1:7377/actions/bank/"+c.group+"/connections", http.NoBody)
		request.Header.Set("X-Conclave-Key", c.key)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		expect.Equal(t, strings.TrimSpace(recorder.Body.String()), c.want)
	}
}

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
				Steps: []journal.Step{tenure}, Waits: []control.Wait{{Term: 7, Connections: 2}},
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
		"clients":  {"ledger", actions.Key, http.StatusOK, `"waited":"2 connections waited, the longest for 0.000 ms"`},
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
