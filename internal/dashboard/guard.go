package dashboard

import (
	"fmt"
	"net/http"
)

// policy allows the page to load and connect to what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; form-action "

// Site is how users address a server.
type Site struct {
	// Accepts reports whether a Host header names this server.
	Accepts func(host string) bool
	// Address is a URL of the server, for errors.
	Address string
	// Forms is where forms may be sent to, in the notation of the content security policy.
	Forms string
}

// Guard refuses requests that are addressed to another server or that other web sites
// caused, and sets the headers of all responses.
func Guard(next http.Handler, site Site) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next) // Refuses changes that other sites request.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy+site.Forms)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		if !site.Accepts(r.Host) {
			http.Error(w, fmt.Sprintf("this server is %s, not %q", site.Address, r.Host), http.StatusMisdirectedRequest)
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
