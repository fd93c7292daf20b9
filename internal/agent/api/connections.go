package api

import (
	"context"
	"net"
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

// withConn lets a handler find the connection of a request, and its user.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	ctx = connlimit.WithConn(ctx, conn)
	if limited := connlimit.OfContext(ctx); limited != nil {
		return withUser(ctx, limited.NetConn())
	}
	return ctx
}
