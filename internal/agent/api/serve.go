package api

import (
	"context"
	"errors"
	"fmt"
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
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headersSoon,
		ReadTimeout:       bodySoon,
		WriteTimeout:      answersSoon,
		IdleTimeout:       idleMax,
		MaxHeaderBytes:    headerMax,
		// Streams end with the server.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("the local API: %w", err)
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
		return fmt.Errorf("close the local API: %w", err)
	}
	return nil
}

// writesSoon sets the deadline for what is written next, in place of the
// server's, which counts from the request. The one for reading is over when the
// request has been read. A writer without deadlines, in a test, has none to set.
func writesSoon(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writePatience))
}
