// Package httpserver serves the operator's ports. Every pod in the cluster can connect to them, so the package bounds
// what clients can occupy: connections, bytes of requests, and time.
//
//   - A host has at most ConnectionsPerHost connections. A new connection replaces the
//     oldest one of its host or, if there are Connections in total, the oldest one of the
//     host that has the most (package connlimit).
//   - A request is read completely before it is handled. All bodies together have at most
//     Bodies bytes, those of one host half of that. Others are rejected.
//   - A client has Timeout to send its request.
//
// # What is not guaranteed
//
// Clients with many addresses can still occupy all connections. A NetworkPolicy that
// admits only the API server to the webhook prevents that.
package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// Limits bounds what clients can occupy.
type Limits struct {
	Connections, ConnectionsPerHost int
	// Body is the maximum size of the body of a request, Bodies that of all bodies.
	Body, Bodies int64
	// Timeout is the maximum time for the TLS handshake, and for reading a request.
	Timeout time.Duration
}

const (
	maxHeader   = 16 << 10
	idleTimeout = 30 * time.Second
)

// Server serves one port.
type Server struct {
	// Name is what the server serves, for errors.
	Name     string
	Listener net.Listener
	Handler  http.Handler
	// TLS is nil for a server without TLS.
	TLS    *tls.Config
	Limits Limits
	Log    *slog.Logger

	serving atomic.Bool
}

// NeedLeaderElection returns false: all replicas serve.
func (*Server) NeedLeaderElection() bool { return false }

// Check fails until the server is serving. It is a readiness check.
func (s *Server) Check(*http.Request) error {
	if !s.serving.Load() {
		return fmt.Errorf("not serving %s yet", s.Name)
	}
	return nil
}

// Start serves until the context ends. It then completes the requests in progress.
func (s *Server) Start(ctx context.Context) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // With HTTP/2, one connection could have hundreds of requests.
	server := &http.Server{
		Handler:           limitBodies(s.Handler, s.Limits),
		Protocols:         &protocols,
		TLSConfig:         s.TLS,
		ReadHeaderTimeout: s.Limits.Timeout,
		ReadTimeout:       s.Limits.Timeout,
		WriteTimeout:      2 * s.Limits.Timeout, // It begins when the header has been read.
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Limits.Timeout)
		defer cancel()
		stopped <- server.Shutdown(shutdown)
	}()
	listener := connlimit.New(s.Listener, connlimit.Limits{
		Unpinned: s.Limits.Connections, UnpinnedPerHost: s.Limits.ConnectionsPerHost,
	})
	s.serving.Store(true)
	serve := func() error { return server.Serve(listener) }
	if s.TLS != nil {
		serve = func() error { return server.ServeTLS(listener, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve %s: %w", s.Name, err)
	}
	return <-stopped
}

// memory counts the bytes of the bodies of all requests in progress.
type memory struct {
	limit int64

	mu    sync.Mutex
	used  int64
	hosts map[netip.Prefix]int64
}

// reserve reserves n more bytes for a host, and reports whether there are enough. One host gets at most half of all.
func (m *memory) reserve(host netip.Prefix, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit || m.hosts[host]+n > m.limit/2 {
		return false
	}
	m.used += n
	m.hosts[host] += n
	return true
}

func (m *memory) release(host netip.Prefix, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.hosts[host] -= n; m.hosts[host] == 0 {
		delete(m.hosts, host)
	}
}

var (
	errTooLarge = errors.New("the body of the request is too large")
	errNoMemory = errors.New("too many requests are in progress; retry later")
)

func limitBodies(handler http.Handler, limits Limits) http.Handler {
	m := &memory{limit: limits.Bodies, hosts: map[netip.Prefix]int64{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			handler.ServeHTTP(w, r)
			return
		}
		client, _ := netip.ParseAddrPort(r.RemoteAddr) // Clients without an IP address count as one host.
		host := connlimit.Host(client.Addr())
		body, reserved, err := readBody(r, m, host, limits.Body)
		defer func() { m.release(host, reserved) }()
		if err != nil {
			w.Header().Set("Connection", "close") // The rest of the body isn't read.
			refuse(w, err, limits.Body)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		handler.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, err error, limit int64) {
	switch {
	case errors.Is(err, errTooLarge):
		http.Error(w, fmt.Sprintf("%s: it must have at most %d bytes", err, limit), http.StatusRequestEntityTooLarge)
	case errors.Is(err, errNoMemory):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "cannot read the request: "+err.Error(), http.StatusBadRequest)
	}
}

// readBody reads the body of a request, and returns the number of bytes that it has
// reserved. It reserves memory as the body arrives, not as the client announces it.
func readBody(r *http.Request, m *memory, host netip.Prefix, limit int64) (body []byte, reserved int64, err error) {
	if r.ContentLength > limit {
		return nil, 0, errTooLarge
	}
	most := limit + 1 // One more byte shows that the body is too large.
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			const first = 8 << 10
			size := min(max(first, 2*reserved), most)
			if !m.reserve(host, size-reserved) {
				return nil, reserved, errNoMemory
			}
			reserved = size
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, reserved, err
		}
	}
	if int64(len(body)) > limit {
		return nil, reserved, errTooLarge
	}
	return body, reserved, nil
}
