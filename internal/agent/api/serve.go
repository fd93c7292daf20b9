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
)

const (
	headerMax   = 8 << 10
	headersSoon = 5 * time.Second
	bodySoon    = 10 * time.Second
	answersSoon = 10 * time.Second
	idleMax     = 2 * time.Minute
	// goodbye is how long requests that are being answered get when the server ends.
	goodbye = time.Second
)

// Serve answers on the listener until the context ends, and then ends all
// streams. The listener is closed when it returns.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if err := answerOn(ctx, listener, handler, nil, bounded(localConnectionsMax)); err != nil {
		return fmt.Errorf("the local API: %w", err)
	}
	return nil
}

// ServeOperator is Serve for NewForOperator, over TLS. Handshakes that fail are noted
// in the log's details.
func ServeOperator(ctx context.Context, listener net.Listener, secured *tls.Config, handler http.Handler, log *slog.Logger) error {
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	if err := answerOn(ctx, tls.NewListener(listener, secured), handler, errorLog, bounded(operatorConnectionsMax)); err != nil {
		return fmt.Errorf("the API for the operator: %w", err)
	}
	return nil
}

func answerOn(
	ctx context.Context, listener net.Listener, handler http.Handler, errorLog *log.Logger, watch func(net.Conn, http.ConnState),
) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headersSoon,
		ReadTimeout:       bodySoon,
		WriteTimeout:      answersSoon,
		IdleTimeout:       idleMax,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          errorLog,
		ConnState:         watch,
		// Streams end with the server.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	err := server.Shutdown(deadline)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if stopped := <-ended; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	if err != nil {
		return fmt.Errorf("close it: %w", err)
	}
	return nil
}

// writesSoon sets the deadline for what is written next, in place of the
// server's, which counts from the request. The one for reading is over when the
// request has been read. A writer without deadlines, in a test, has none to set.
func writesSoon(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writePatience))
}
