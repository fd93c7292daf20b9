package dashboard

import (
	"fmt"
	"net"
	"net/http"
)

// policy allows the page to load and connect to what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

// guard refuses requests that are addressed to anything but localhost at this port, or that other web sites caused, and
// sets the headers of all responses. A web site whose name resolves to a loopback address has another name.
func guard(next http.Handler, port int) http.Handler {
	hosts := map[string]bool{}
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		hosts[net.JoinHostPort(host, fmt.Sprint(port))] = true
	}
	next = http.NewCrossOriginProtection().Handler(next) // Refuses changes that other sites request.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		if !hosts[r.Host] {
			text := fmt.Sprintf("this server is http://127.0.0.1:%d/, not %q", port, r.Host)
			http.Error(w, text, http.StatusMisdirectedRequest)
			return
		}
		from := r.Header.Get("Sec-Fetch-Site")
		if (from == "cross-site" || from == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "other web sites cannot read this server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
