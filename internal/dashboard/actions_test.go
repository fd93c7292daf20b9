package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
)

// TestStepDownNeedsTheKey: neither another site nor another user of the machine can make a
// coordinator step down.
func TestStepDownNeedsTheKey(t *testing.T) {
	store := dashboard.NewStore()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	g.Status.Coordinator = &v1.Coordinator{Pod: "ledger-2"}
	store.Set(g)
	done := 0
	actions := &dashboard.Actions{
		Key:            dashboard.NewKey(),
		MayReachAgents: func(context.Context, *v1.ElectionGroup) (bool, error) { return true, nil },
		StepDown: func(_ context.Context, _ *v1.ElectionGroup, to string) (string, error) {
			done++
			return to + " leads", nil
		},
	}
	const good = `{"coordinator":"ledger-2","to":"ledger-1"}`
	handler := dashboard.NewHandler(store, 7377, actions, "")
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		want   int
		text   string
	}{
		"the page":               {good, map[string]string{"X-Conclave-Key": actions.Key}, http.StatusOK, "ledger-1 leads"},
		"without the key":        {good, nil, http.StatusForbidden, "open the address that kubectl conclave dashboard has printed"},
		"another key":            {good, map[string]string{"X-Conclave-Key": dashboard.NewKey()}, http.StatusForbidden, "open the address"},
		"an empty key":           {good, map[string]string{"X-Conclave-Key": ""}, http.StatusForbidden, "open the address"},
		"another site":           {good, map[string]string{"X-Conclave-Key": actions.Key, "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden, "other web sites"},
		"another port":           {good, map[string]string{"X-Conclave-Key": actions.Key, "Sec-Fetch-Site": "same-site"}, http.StatusForbidden, "other web sites"},
		"a form of another site": {good, map[string]string{"X-Conclave-Key": actions.Key, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusForbidden, "cross-origin"},
		"another origin":         {good, map[string]string{"X-Conclave-Key": actions.Key, "Origin": "http://localhost:80"}, http.StatusForbidden, "cross-origin"},
		"a name that resolves":   {good, map[string]string{"X-Conclave-Key": actions.Key, "Host": "evil.example:7377"}, http.StatusMisdirectedRequest, "this server is"},
		"a former coordinator":   {`{"coordinator":"ledger-0"}`, map[string]string{"X-Conclave-Key": actions.Key}, http.StatusConflict, "the coordinator has changed since; nothing was done"},
		"no coordinator":         {`{}`, map[string]string{"X-Conclave-Key": actions.Key}, http.StatusConflict, "nothing was done"},
		"what isn't JSON":        {`x`, map[string]string{"X-Conclave-Key": actions.Key}, http.StatusBadRequest, "cannot parse the request"},
		"a large request":        {`{"to":"` + strings.Repeat("x", 5000) + `"}`, map[string]string{"X-Conclave-Key": actions.Key}, http.StatusBadRequest, "too large"},
		"a server that may not":  {good, map[string]string{"X-Conclave-Key": ""}, http.StatusForbidden, "open the address"},
		"a server without a key": {good, map[string]string{"X-Conclave-Key": " "}, http.StatusForbidden, "open the address"},
	} {
		before := done
		server := handler
		if name == "a server that may not" {
			server = dashboard.NewHandler(store, 7377, nil, "")
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/actions/bank/ledger/step-down", strings.NewReader(c.body))
		request.Host = "localhost:7377"
		for key, value := range c.header {
			request.Header.Set(key, value)
			if key == "Host" {
				request.Host = value
			}
		}
		response := httptest.NewRecorder()
		server.ServeHTTP(response, request)
		if response.Code != c.want || !strings.Contains(response.Body.String(), c.text) {
			t.Errorf("%s: got status %d, %s, want %d, %s", name, response.Code, response.Body, c.want, c.text)
		}
		if strings.Contains(response.Body.String(), actions.Key) {
			t.Errorf("%s: got %s, want an answer without the key", name, response.Body)
		}
		if acted := done > before; acted != (c.want == http.StatusOK) {
			t.Errorf("%s: stepped down: %t", name, acted)
		}
	}
}
