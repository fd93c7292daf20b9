package connlimit

import (
	"context"
	"net"
	"net/http"
)

type connKey struct{}

// WithConn is for the ConnContext of a server. It lets OfRequest find the connection of a request.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if inner, ok := secured.NetConn().(*Conn); ok {
			conn = inner
		}
	}
	if limited, ok := conn.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, limited)
	}
	return ctx
}

// OfContext returns the connection that WithConn has added, nil if there is none. A nil Conn has no limits.
func OfContext(ctx context.Context) *Conn {
	conn, _ := ctx.Value(connKey{}).(*Conn)
	return conn
}

// OfRequest returns the connection of a request, nil in a test without a server.
func OfRequest(r *http.Request) *Conn { return OfContext(r.Context()) }
