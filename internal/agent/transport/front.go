package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Front accepts connections for several transports of one process, each in a domain of its own. It is the listener of
// their configurations. The certificate of a peer, and nothing that it says, selects the transport. So a peer reaches
// none of another domain.
type Front struct {
	net.Listener

	Certificates *identity.Files
	Log          *slog.Logger

	mu         sync.Mutex
	transports map[string]*Transport
}

// Close does nothing: the listener belongs to Serve.
func (*Front) Close() error { return nil }

func (f *Front) add(t *Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.transports == nil {
		f.transports = map[string]*Transport{}
	}
	f.transports[t.Domain] = t
}

func (f *Front) remove(t *Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.transports, t.Domain)
}

// Serve accepts connections until the context ends, and closes the listener.
func (f *Front) Serve(ctx context.Context) {
	limited := connlimit.New(f.Listener, limits)
	stop := context.AfterFunc(ctx, func() {
		_ = f.Listener.Close() // Nothing depends on the error any more.
		limited.CloseUnpinned()
	})
	defer stop()
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	acceptAll(ctx, limited, f.Log, func(raw net.Conn) {
		handshakes.Go(func() {
			if err := f.pass(ctx, raw); err != nil {
				_ = raw.Close() // The other error is the one to report.
				f.Log.Debug("rejected connection", "address", raw.RemoteAddr(), "error", err)
			}
		})
	})
}

// pass passes a connection to the transport of its peer's domain.
func (f *Front) pass(ctx context.Context, raw net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, defaultHandshakeTimeout)
	defer cancel()
	secured := tls.Server(raw, f.Certificates.Server())
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("cannot complete TLS handshake: %w", err)
	}
	names, err := identity.PeerNames(secured.ConnectionState())
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.transports[names[0].Domain] // The names of an agent have the same.
	if t == nil {
		return fmt.Errorf("this process has no agent in domain %q", names[0].Domain)
	}
	t.tasks.Go(func() { t.handleIncoming(raw, secured) })
	return nil
}

// acceptAll calls handle for each connection, until the listener is closed or the context ends.
func acceptAll(ctx context.Context, listener net.Listener, log *slog.Logger, handle func(net.Conn)) {
	for {
		raw, err := listener.Accept()
		switch {
		case err == nil:
			handle(raw)
		case errors.Is(err, net.ErrClosed):
			return
		default: // Most likely there are too many open files.
			log.Warn("cannot accept connection; retrying", "error", err)
			select {
			case <-time.After(redialDelay):
			case <-ctx.Done():
				return
			}
		}
	}
}
