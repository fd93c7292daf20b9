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
	// maxBody is room for a token and a request, several times over.
	maxBody = 64 << 10
	// maxActive enrolments are under way, and maxWaiting wait for their turn: a
	// thousand pods that start at once mustn't become a thousand requests to the
	// API server at once.
	maxActive  = 16
	maxWaiting = 1024
	// patience is how long an agent waits for its answer.
	patience = 10 * time.Second
	// retryAfter is what those are told who can't even wait, in seconds.
	retryAfter = 1
)

// Handler serves control.CertificatesPath.
func (s *Service) Handler() http.Handler {
	h := &handler{service: s, waiting: make(chan struct{}, maxWaiting), active: make(chan struct{}, maxActive)}
	mux := http.NewServeMux()
	mux.Handle(control.CertificatesPath, h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, control.ErrorResponse{Error: "there is only POST " + control.CertificatesPath})
	})
	return mux
}

type handler struct {
	service         *Service
	waiting, active chan struct{}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		answer(w, http.StatusMethodNotAllowed, control.ErrorResponse{Error: "POST an enrolment here"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	enrolled, err := h.enrol(ctx, http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status, reason := statusOf(err)
		level := slog.LevelInfo
		if status >= http.StatusInternalServerError {
			level = slog.LevelWarn
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		h.service.Log.Log(ctx, level, "an enrolment was refused", "from", r.RemoteAddr, "status", status, "error", err)
		answer(w, status, control.ErrorResponse{Error: reason})
		return
	}
	answer(w, http.StatusOK, enrolled)
}

func (h *handler) enrol(ctx context.Context, body io.Reader) (*control.EnrollmentResponse, error) {
	var e control.EnrollmentRequest
	if err := decode(body, &e); err != nil {
		return nil, err
	}
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return nil, refuse(http.StatusServiceUnavailable, "too many enrolments wait already: ask again later")
	}
	select {
	case h.active <- struct{}{}:
		defer func() { <-h.active }()
	case <-ctx.Done():
		return nil, unavailable("too many enrolments are under way", ctx.Err())
	}
	return h.service.enrol(ctx, e)
}

func decode(body io.Reader, into *control.EnrollmentRequest) error {
	text, err := io.ReadAll(body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "an enrolment has %d bytes at most", maxBody)
	case err != nil:
		return refuse(http.StatusBadRequest, "the enrolment can't be read: %s", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return refuse(http.StatusBadRequest, `an enrolment must be JSON, such as {"token":"...","request":"..."}: %s`, err)
	}
	return nil
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // whoever asked is gone
	}
}

// Server serves over TLS, on every replica.
type Server struct {
	Service     *Service
	Listener    net.Listener
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// NeedLeaderElection is false: a new pod can't wait for a new leader.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends, and lets those finish who wait for an
// answer.
func (s *Server) Start(ctx context.Context) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // an agent asks one thing
	server := &http.Server{
		Handler:           s.Service.Handler(),
		Protocols:         &protocols,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.Certificate},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       patience,
		WriteTimeout:      2 * patience,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.Service.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		ended <- server.Shutdown(last)
	}()
	if err := server.ServeTLS(s.Listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve agents: %w", err)
	}
	return <-ended
}
