package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/dashboard"
)

// TestOnlyThisMachineIsServed: a web site can make a browser send requests to loopback
// addresses, but not choose their Host header freely, nor hide that it is another site.
func TestOnlyThisMachineIsServed(t *testing.T) {
	handler := dashboard.NewHandler(dashboard.NewStore(), 7377, nil, "")
	for name, c := range map[string]struct {
		method, host, path string
		header             map[string]string
		want               int
	}{
		"by address":                      {"GET", "127.0.0.1:7377", "/", nil, http.StatusOK},
		"by name":                         {"GET", "localhost:7377", "/app.js", nil, http.StatusOK},
		"by address, IPv6":                {"GET", "[::1]:7377", "/style.css", nil, http.StatusOK},
		"another name for the address":    {"GET", "evil.example:7377", "/", nil, http.StatusMisdirectedRequest},
		"events by another name":          {"GET", "evil.example:7377", "/events", nil, http.StatusMisdirectedRequest},
		"another port":                    {"GET", "127.0.0.1:80", "/", nil, http.StatusMisdirectedRequest},
		"no port":                         {"GET", "localhost", "/", nil, http.StatusMisdirectedRequest},
		"no host":                         {"GET", "", "/", nil, http.StatusMisdirectedRequest},
		"a script of another site":        {"GET", "localhost:7377", "/events", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, http.StatusForbidden},
		"a script of a sibling domain":    {"GET", "localhost:7377", "/events", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		"a link of another site":          {"GET", "localhost:7377", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusOK},
		"a request that would change":     {"POST", "localhost:7377", "/events", nil, http.StatusMethodNotAllowed},
		"deleting":                        {"DELETE", "localhost:7377", "/events/bank/ledger", nil, http.StatusMethodNotAllowed},
		"a file outside the assets":       {"GET", "localhost:7377", "/../server.go", nil, http.StatusTemporaryRedirect},
		"a path that isn't served":        {"GET", "localhost:7377", "/server.go", nil, http.StatusNotFound},
		"a group without a namespace":     {"GET", "localhost:7377", "/events/ledger", nil, http.StatusNotFound},
		"the headers, also of an error":   {"GET", "localhost:7377", "/missing", nil, http.StatusNotFound},
		"a port that is no port, at all":  {"GET", "localhost:http", "/", nil, http.StatusMisdirectedRequest},
		"credentials do not hide another": {"GET", "localhost:7377@evil.example", "/", nil, http.StatusMisdirectedRequest},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Events that are served by mistake never end.
		request := httptest.NewRequestWithContext(ctx, c.method, "/", http.NoBody)
		request.URL.Path, request.Host = c.path, c.host
		for key, value := range c.header {
			request.Header.Set(key, value)
		}
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		cancel()
		if response.Code != c.want {
			t.Errorf("%s: got status %d, %s, want %d", name, response.Code, response.Body, c.want)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
				"base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := response.Header().Get(header); got != want {
				t.Errorf("%s: got %s %q, want %q", name, header, got, want)
			}
		}
	}
}

// TestPageIsSelfContained: the page loads nothing from elsewhere, and has no inline code.
func TestPageIsSelfContained(t *testing.T) {
	handler := dashboard.NewHandler(dashboard.NewStore(), 7377, nil, "")
	for _, path := range []string{"/", "/app.js", "/cards.js", "/dom.js", "/file.js", "/group.js", "/nodes.js", "/overview.js", "/picture.js", "/sequence.js", "/stepdown.js", "/stream.js", "/style.css", "/icon.svg"} {
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
