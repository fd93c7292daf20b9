package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestOnlyThisMachineIsServed: a web site can make a browser send requests to loopback
// addresses, but not choose their Host header freely, nor hide that it is another site.
func TestOnlyThisMachineIsServed(t *testing.T) {
	handler := dashboard.NewHandler(dashboard.NewStore(), 7377, nil, "")
	// A request is a method, a host and a path, and for some also the origin and the mode of a browser's request.
	for request, want := range map[string]int{
		"GET 127.0.0.1:7377 /":                         http.StatusOK,
		"GET localhost:7377 /app.js":                   http.StatusOK,
		"GET [::1]:7377 /style.css":                    http.StatusOK,
		"GET evil.example:7377 /":                      http.StatusMisdirectedRequest,
		"GET evil.example:7377 /events":                http.StatusMisdirectedRequest,
		"GET 127.0.0.1:80 /":                           http.StatusMisdirectedRequest,
		"GET localhost /":                              http.StatusMisdirectedRequest,
		"GET - /":                                      http.StatusMisdirectedRequest,
		"GET localhost:http /":                         http.StatusMisdirectedRequest,
		"GET localhost:7377@evil.example /":            http.StatusMisdirectedRequest,
		"GET localhost:7377 /events cross-site cors":   http.StatusForbidden,
		"GET localhost:7377 /events same-site no-cors": http.StatusForbidden,
		"GET localhost:7377 / cross-site navigate":     http.StatusOK, // a link
		"POST localhost:7377 /events":                  http.StatusMethodNotAllowed,
		"DELETE localhost:7377 /events/bank/ledger":    http.StatusMethodNotAllowed,
		"GET localhost:7377 /../server.go":             http.StatusTemporaryRedirect,
		"GET localhost:7377 /server.go":                http.StatusNotFound,
		"GET localhost:7377 /events/ledger":            http.StatusNotFound,
		"GET localhost:7377 /missing":                  http.StatusNotFound,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Events that are served by mistake never end.
		words := strings.Fields(request)
		r := httptest.NewRequestWithContext(ctx, words[0], "/", http.NoBody)
		r.Host, r.URL.Path = strings.TrimPrefix(words[1], "-"), words[2]
		if len(words) > 3 {
			r.Header.Set("Sec-Fetch-Site", words[3])
			r.Header.Set("Sec-Fetch-Mode", words[4])
		}
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		cancel()
		expect.Equalf(t, response.Code, want, "%s: status with %s", request, response.Body)
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src " +
				"'self'; connect-src 'self'; " +
				"base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			expect.Equalf(t, response.Header().Get(header), want, "%s: %s", request, header)
		}
	}
}

// TestPageIsSelfContained: the page loads nothing from elsewhere, and has no inline code.
func TestPageIsSelfContained(t *testing.T) {
	handler := dashboard.NewHandler(dashboard.NewStore(), 7377, nil, "")
	for _, path := range []string{
		"/", "/app.js", "/cards.js", "/dom.js", "/file.js", "/group.js", "/nodes.js", "/overview.js", "/picture.js",
		"/sequence.js", "/stepdown.js", "/stream.js", "/style.css", "/icon.svg",
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		request.Host = "localhost:7377"
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		text := strings.ReplaceAll(response.Body.String(), "http://www.w3.org/2000/svg", "")
		if response.Code != http.StatusOK || text == "" {
			t.Errorf("%s: got status %d and %d bytes", path, response.Code, len(text))
		}
		for _, forbidden := range []string{"http://", "https://", "innerHTML", "eval(", "style=\"", "onclick=\""} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s: got %q in it", path, forbidden)
			}
		}
	}
}

// TestStepDownNeedsTheKey: neither another site nor another user of the machine can make a coordinator step down.
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
	// with returns the headers of a request with a key, and others.
	with := func(key string, others ...string) map[string]string {
		header := map[string]string{"X-Conclave-Key": key}
		for pair := range slices.Chunk(others, 2) {
			header[pair[0]] = pair[1]
		}
		return header
	}
	key := actions.Key
	const good = `{"coordinator":"ledger-2","to":"ledger-1"}`
	handler := dashboard.NewHandler(store, 7377, actions, "")
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		want   int
		text   string
	}{
		"the page":        {good, with(key), http.StatusOK, "ledger-1 leads"},
		"without the key": {good, nil, http.StatusForbidden, "open the address that kubectl conclave dashboard has printed"},
		"another key":     {good, with(dashboard.NewKey()), http.StatusForbidden, "open the address"},
		"an empty key":    {good, with(""), http.StatusForbidden, "open the address"},
		"another site":    {good, with(key, "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "other web sites"},
		"another port":    {good, with(key, "Sec-Fetch-Site", "same-site"), http.StatusForbidden, "other web sites"},
		"a form of another site": {
			good, with(key, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"), http.StatusForbidden, "cross-origin",
		},
		"another origin": {good, with(key, "Origin", "http://localhost:80"), http.StatusForbidden, "cross-origin"},
		"a name that resolves": {
			good, with(key, "Host", "evil.example:7377"), http.StatusMisdirectedRequest, "this server is",
		},
		"a former coordinator": {
			`{"coordinator":"ledger-0"}`, with(key), http.StatusConflict, "the coordinator has changed since; nothing was done",
		},
		"no coordinator":  {`{}`, with(key), http.StatusConflict, "nothing was done"},
		"what isn't JSON": {`x`, with(key), http.StatusBadRequest, "cannot parse the request"},
		"a large request": {
			`{"to":"` + strings.Repeat("x", 5000) + `"}`, with(key), http.StatusBadRequest, "too large",
		},
		"a server that may not":  {good, with(""), http.StatusForbidden, "open the address"},
		"a server without a key": {good, with(" "), http.StatusForbidden, "open the address"},
	} {
		before := done
		server := handler
		if name == "a server that may not" {
			server = dashboard.NewHandler(store, 7377, nil, "")
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/actions/bank/ledger/step-down",
			strings.NewReader(c.body))
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
		expect.Equalf(t, done > before, c.want == http.StatusOK, "%s: stepped down", name)
	}
}
