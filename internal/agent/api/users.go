package api

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

type userKey struct{}

// withUser records the user of the process at the other end of a Unix socket, as the
// kernel knows it from the time of the connection.
func withUser(ctx context.Context, conn net.Conn) context.Context {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	var peer *unix.Ucred
	raw, err := socket.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	}
	if err != nil {
		peer = nil
	}
	return context.WithValue(ctx, userKey{}, peer)
}

// RestrictUsers refuses requests over a Unix socket from users whom allow doesn't accept.
// If allow is nil, it accepts everyone. Requests over TCP pass, because the kernel doesn't
// know their user.
func RestrictUsers(handler http.Handler, allow func(uid uint32) bool) http.Handler {
	if allow == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, isSocket := r.Context().Value(userKey{}).(*unix.Ucred)
		switch {
		case !isSocket, peer != nil && allow(peer.Uid):
			handler.ServeHTTP(w, r)
		case peer == nil:
			setHeaders(w)
			writeError(w, http.StatusForbidden, fmt.Errorf("cannot determine the user of the client"))
		default:
			setHeaders(w)
			writeError(w, http.StatusForbidden, fmt.Errorf("user %d may not use this API: add it to the allowed user IDs of the agent", peer.Uid))
		}
	})
}
