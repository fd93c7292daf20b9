package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

const (
	maxHeaderBytes    = 8 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// shutdownTimeout bounds how long active requests may take when the server ends.
	shutdownTimeout = time.Second
)

// Serve serves the local API on the listener until the context ends. It then ends all
// streams, and closes the listener before it returns.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if err := serve(ctx, connlimit.New(listener, localLimits), handler, nil); err != nil {
		return fmt.Errorf("local API: %w", err)
	}
	return nil
}

// ServeOperator serves the API for the operator, over TLS, as Serve does. It logs failed handshakes for debugging. more
// is the number of connections with requests beyond those that the agent of a pod needs.
func ServeOperator(ctx context.Context, listener net.Listener, more int, secured *tls.Config,
	handler http.Handler, log *slog.Logger,
) error {
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	limits := operatorLimits
	limits.Pinned += more
	limited := connlimit.New(listener, limits)
	if err := serve(ctx, tls.NewListener(limited, secured), handler, errorLog); err != nil {
		return fmt.Errorf("API for the operator: %w", err)
	}
	return nil
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, errorLog *log.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnContext:       withConn,
		// The end of ctx ends the streams.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(deadline)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	if err != nil {
		return fmt.Errorf("cannot close server: %w", err)
	}
	return nil
}

// extendWriteDeadline sets the deadline for the next write. It replaces that of the server, which counts from the
// beginning of the request. Some writers in tests have no deadlines.
func extendWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(nextWriteTimeout))
}

// localLimits are for the programs in the same pod. A connection is pinned while it has a stream. The number of
// descriptors stays below that of transport.Listen. The buffers are small because the kernel's memory counts for the
// container, too: a client may send much while its stream lasts, or read nothing.
var localLimits = connlimit.Limits{Unpinned: 256, Pinned: sessionsMax + watchersMax, Buffer: 8 << 10}

// operatorLimits are for clients on the network. A connection is pinned during a request with the certificate of the
// operator or of a reader of metrics. Others need a few hundred bytes, after a TLS handshake.
var operatorLimits = connlimit.Limits{
	Unpinned: 64, UnpinnedPerHost: 16, Bytes: 16 << 10, TotalBytes: 512 << 10, Lifetime: 15 * time.Second,
	Pinned: 128, Buffer: 32 << 10,
}

// withConn lets a handler find the connection of a request, and its user.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	ctx = connlimit.WithConn(ctx, conn)
	if limited := connlimit.OfContext(ctx); limited != nil {
		return withUser(ctx, limited.NetConn())
	}
	return ctx
}

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

// RestrictUsers refuses requests over a Unix socket from users whom allow doesn't accept. If allow is nil, it accepts
// everyone. Requests over TCP pass, because the kernel doesn't know their user.
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
			writeError(w, http.StatusForbidden,
				fmt.Errorf("user %d may not use this API: add it to the allowed user IDs of the agent", peer.Uid))
		}
	})
}

var crossOrigin = http.NewCrossOriginProtection()

// rejectWebPage returns an error if a request comes from a web page, through the browser of a user who runs an agent on
// the same machine. Such a page could make the coordinator step down, or open a session and act as the application.
//
// Two checks are needed. The browser states from which site a request comes. But if the page's own host name resolves
// to this machine (DNS rebinding), the browser considers it the same site. Then the Host header has that name instead
// of that of loopback. On other addresses than loopback, an agent may have any host name.
func rejectWebPage(r *http.Request) error {
	// CrossOriginProtection accepts every GET. Here, a GET has effects: it opens a session.
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
