package httpserver

import (
	"context"
	"net"
	"net/http"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

type connKey struct{}

// withConn lets Pin find the connection of a request.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if inner, ok := secured.NetConn().(*connlimit.Conn); ok {
			conn = inner
		}
	}
	if limited, ok := conn.(*connlimit.Conn); ok {
		return context.WithValue(ctx, connKey{}, limited)
	}
	return ctx
}

// Pin exempts the connection of a request from the limits until unpin is called, so that
// others can't close it by connecting. Use it for streams of authenticated clients. It
// returns false if there are Limits.Pinned such connections.
func Pin(r *http.Request) (unpin func(), ok bool) {
	conn, ok := r.Context().Value(connKey{}).(*connlimit.Conn)
	if !ok {
		return func() {}, true // A test without a server.
	}
	return conn.Unpin, conn.Pin()
}
