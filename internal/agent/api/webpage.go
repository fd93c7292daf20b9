package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

var crossOrigin = http.NewCrossOriginProtection()

// fromWebPage says what is wrong with a request that a web page makes through
// the browser of somebody who runs an agent on the same machine. Such a page
// could take the role from the coordinator, or open a session and be the
// application. Two checks are needed: a request says from which site it comes,
// unless the page's own name has been made to point here (DNS rebinding); then
// it is that name in its Host header that gives it away. Over other addresses
// than loopback an agent may have any name.
func fromWebPage(r *http.Request) error {
	// Also a GET has effects here: it is how a session is opened. The check lets every GET pass.
	posted := *r
	posted.Method = http.MethodPost
	if err := crossOrigin.Check(&posted); err != nil {
		return errors.New("a web page of another site can't ask an agent")
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
	return fmt.Errorf("the Host header says %q: ask for localhost or for an IP address", r.Host)
}
