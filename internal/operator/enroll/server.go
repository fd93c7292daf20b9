package enroll

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// maxBody is several times the size of a token and a certificate request.
	maxBody = 64 << 10
	// At most maxActive enrollments run at once, and at most maxQueued wait, so that
	// a thousand pods that start at once don't cause a thousand concurrent requests
	// to the API server.
	maxActive = 16
	maxQueued = 1024
	// enrollTimeout limits one enrollment, including the time in the queue.
	enrollTimeout = 10 * time.Second
	// retryAfter is the value of the Retry-After header, in seconds.
	retryAfter = 1
)

// Handler returns the HTTP handler for control.CertificatesPath.
func (s *Service) Handler() http.Handler {
	h := &handler{service: s, queued: make(chan struct{}, maxQueued), active: make(chan struct{}, maxActive)}
	mux := http.NewServeMux()
	mux.Handle(control.CertificatesPath, h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, control.ErrorResponse{Error: "path must be " + control.CertificatesPath})
	})
	return mux
}

type handler struct {
	service        *Service
	queued, active chan struct{}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeJSON(w, http.StatusMethodNotAllowed, control.ErrorResponse{Error: "method must be POST"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), enrollTimeout)
	defer cancel()
	response, err := h.enroll(ctx, http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status, message := statusAndMessage(err)
		level := slog.LevelInfo
		if status >= http.StatusInternalServerError {
			level = slog.LevelWarn
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		h.service.Log.Log(ctx, level, "refused enrollment", "from", r.RemoteAddr, "status", status, "error", err)
		writeJSON(w, status, control.ErrorResponse{Error: message})
		return
	}
	writeJSON(w, http.StatusOK, response)
}

func (h *handler) enroll(ctx context.Context, body io.Reader) (*control.EnrollmentResponse, error) {
	var e control.EnrollmentRequest
	if err := decode(body, &e); err != nil {
		return nil, err
	}
	select {
	case h.queued <- struct{}{}:
		defer func() { <-h.queued }()
	default:
		return nil, refuse(http.StatusServiceUnavailable, "too many enrollments are queued; retry later")
	}
	select {
	case h.active <- struct{}{}:
		defer func() { <-h.active }()
	case <-ctx.Done():
		return nil, unavailable("too many enrollments are in progress", ctx.Err())
	}
	return h.service.enroll(ctx, e)
}

func decode(body io.Reader, into *control.EnrollmentRequest) error {
	text, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "enrollment must have at most %d bytes", maxBody)
	case err != nil:
		return refuse(http.StatusBadRequest, "cannot read enrollment: %s", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return refuse(http.StatusBadRequest, `enrollment must be JSON, such as {"token":"...","request":"..."}: %s`, err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // The client has disconnected.
	}
}

// Server serves a Service over TLS, on each replica of the manager.
type Server struct {
	Service     *Service
	Listener    net.Listener
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// NeedLeaderElection returns false: new pods can enroll while the manager has no
// leader.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It then completes the enrollments in progress.
func (s *Server) Start(ctx context.Context) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // An agent sends one request per connection, so HTTP/2 has no benefit.
	server := &http.Server{
		Handler:           s.Service.Handler(),
		Protocols:         &protocols,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.Certificate},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       enrollTimeout,
		WriteTimeout:      2 * enrollTimeout,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.Service.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), enrollTimeout)
		defer cancel()
		stopped <- server.Shutdown(shutdown)
	}()
	if err := server.ServeTLS(s.Listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve agents: %w", err)
	}
	return <-stopped
}
