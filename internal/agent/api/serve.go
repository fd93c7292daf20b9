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
	"time"

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

// ServeOperator serves the API for the operator, over TLS, as Serve does. It logs
// failed handshakes for debugging.
func ServeOperator(ctx context.Context, listener net.Listener, secured *tls.Config, handler http.Handler, log *slog.Logger) error {
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	limited := connlimit.New(listener, operatorLimits)
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

// extendWriteDeadline sets the deadline for the next write. It replaces that of the
// server, which counts from the beginning of the request. Some writers in tests have
// no deadlines.
func extendWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(nextWriteTimeout))
}
