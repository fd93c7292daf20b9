package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// localLimits are for the programs in the same pod. A connection is pinned while it has a
// stream. The number of descriptors stays below that of transport.Listen. The buffers are
// small because the kernel's memory counts for the container, too: a client may send much
// while its stream lasts, or read nothing.
var localLimits = connlimit.Limits{Unpinned: 256, Pinned: sessionsMax + watchersMax, Buffer: 8 << 10}

// operatorLimits are for clients on the network. A connection is pinned during a request
// with the certificate of the operator or of a reader of metrics. Others need a few hundred
// bytes, after a TLS handshake.
var operatorLimits = connlimit.Limits{
	Unpinned: 64, UnpinnedPerHost: 16, Bytes: 16 << 10, TotalBytes: 512 << 10, Lifetime: 15 * time.Second, Pinned: 128, Buffer: 32 << 10,
}

type connKey struct{}

// withConn lets connOf find the connection of a request.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		if inner, ok := secured.NetConn().(*connlimit.Conn); ok {
			conn = inner
		}
	}
	limited, ok := conn.(*connlimit.Conn)
	if !ok {
		return ctx
	}
	return context.WithValue(withUser(ctx, limited.NetConn()), connKey{}, limited)
}

// connOf returns the connection of a request, nil in a test without a server.
func connOf(r *http.Request) *connlimit.Conn {
	conn, _ := r.Context().Value(connKey{}).(*connlimit.Conn)
	return conn
}

// pin exempts the connection of a request from the limits for unpinned connections. It
// returns false if there are too many such connections.
func pin(r *http.Request) bool {
	conn := connOf(r)
	return conn == nil || conn.Pin()
}

// unpin unpins the connection of a request.
func unpin(r *http.Request) {
	if conn := connOf(r); conn != nil {
		conn.Unpin()
	}
}

// use marks the connection of a request as the one that was used last.
func use(r *http.Request) {
	if conn := connOf(r); conn != nil {
		conn.Use()
	}
}
