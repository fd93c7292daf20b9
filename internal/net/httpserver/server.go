// Package httpserver serves the operator's ports. Every pod in the cluster can connect to
// them, so the package bounds what clients can occupy: connections, bytes of requests,
// and time.
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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
