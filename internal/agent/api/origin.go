package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

var crossOrigin = http.NewCrossOriginProtection()

// rejectWebPage returns an error if a request comes from a web page, through the
// browser of a user who runs an agent on the same machine. Such a page could make the
// coordinator step down, or open a session and act as the application.
//
// Two checks are needed. The browser states from which site a request comes. But if
// the page's own host name resolves to this machine (DNS rebinding), the browser
// considers it the same site. Then the Host header has that name instead of that of
// loopback. On other addresses than loopback, an agent may have any host name.
func rejectWebPage(r *http.Request) error {
	// CrossOriginProtection accepts every GET. Here, a GET has effects: it opens a
	// session.
	posted := *r
	posted.Method = http.MethodPost
	if err := crossOrigin.Check(&posted); err != nil {
		return errors.New("requests from web pages of other sites are not allowed")
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok || !local.IP.IsLoopback() {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if net.ParseIP(host) != nil || host == "" || strings.EqualFold(host, "localhost") {
		return nil
	}
	return fmt.Errorf("the Host header must be localhost or an IP address, got %q", r.Host)
}
