package enroll

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/net/fair"
	"github.com/conclave-dev/conclave/internal/net/httpserver"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// maxBody is several times the size of a token and a certificate request.
	maxBody = 16 << 10
	// timeout limits one enrollment, including the time in the queue.
	timeout = 10 * time.Second
	// At most maxQueued enrollments are in progress. A thousand pods that start at once must
	// not cause a thousand concurrent requests to the API server, so at most maxReviews of
	// them wait for the review of their token, and at most maxActive for anything else.
	maxQueued  = 1024
	maxReviews = 16
	maxActive  = 16
	// A pod can be in a hundred groups, so after the review an enrollment can take hundreds of requests. The pods of one
	// namespace therefore get a part of maxActive only, and namespaces take turns. Before the review, the namespace isn't
	// known: what a token says about itself could name any. But a review is a single request, so there hosts take turns.
	maxActivePerNamespace = maxActive / 2
	// retryAfter is the value of the Retry-After header, in seconds.
	retryAfter = 1
)

// Limits are those of the port that serves the Handler. Each pod enrolls from its own address, except those with
// hostNetwork. The Handler itself refuses bodies of more than maxBody bytes.
var Limits = httpserver.Limits{
	Connections: 1024, ConnectionsPerHost: 128, Body: 2 * maxBody, Bodies: 24 << 20, Timeout: timeout,
}

// Handler returns the HTTP handler for control.CertificatesPath.
func (s *Service) Handler() http.Handler {
	h := &handler{
		service: s, queued: make(chan struct{}, maxQueued),
		reviews: fair.NewSemaphore[netip.Prefix](maxReviews, maxReviews),
		active:  fair.NewSemaphore[string](maxActive, maxActivePerNamespace),
	}
	mux := http.NewServeMux()
	mux.Handle(control.CertificatesPath, h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, control.ErrorResponse{Error: "path must be " + control.CertificatesPath})
	})
	return mux
}

type handler struct {
	service *Service
	queued  chan struct{}
	// reviews are for hosts, active for namespaces.
	reviews *fair.Semaphore[netip.Prefix]
	active  *fair.Semaphore[string]
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeJSON(w, http.StatusMethodNotAllowed, control.ErrorResponse{Error: "method must be POST"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	response, err := h.enroll(ctx, hostOf(r), http.MaxBytesReader(w, r.Body, maxBody))
	result, message := Issued, ""
	if err != nil {
		result, message = resultAndMessage(err)
	}
	h.service.Refusals.record(r.RemoteAddr, message, err)
	if h.service.Count != nil {
		h.service.Count(result)
	}
	if err != nil {
		status := statuses[result]
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

// hostOf returns the host of a client. Clients without an IP address count as one host.
func hostOf(r *http.Request) netip.Prefix {
	client, _ := netip.ParseAddrPort(r.RemoteAddr)
	return connlimit.Host(client.Addr())
}

func (h *handler) enroll(ctx context.Context, host netip.Prefix, body io.Reader) (*control.EnrollmentResponse, error) {
	select {
	case h.queued <- struct{}{}:
		defer func() { <-h.queued }()
	default:
		return nil, refuse(Overloaded, "too many enrollments are queued; retry later")
	}
	pod, key, err := h.review(ctx, host, body)
	if err != nil {
		return nil, err
	}
	release, err := h.active.Acquire(ctx, pod.namespace)
	if err != nil {
		return nil, tooManyInProgress(err)
	}
	defer release()
	return h.service.enroll(ctx, pod, key)
}

// review verifies a request: what it costs to decode it is limited, too.
func (h *handler) review(ctx context.Context, host netip.Prefix,
	body io.Reader,
) (pod podIdentity, key crypto.PublicKey, err error) {
	release, err := h.reviews.Acquire(ctx, host)
	if err != nil {
		return pod, nil, tooManyInProgress(err)
	}
	defer release()
	var e control.EnrollmentRequest
	if err := decode(body, &e); err != nil {
		return pod, nil, err
	}
	if key, err = requestedKey(e.Request); err != nil {
		return pod, nil, err
	}
	pod, err = h.service.review(ctx, e.Token)
	return pod, key, err
}

func tooManyInProgress(cause error) error {
	return unavailable("too many enrollments are in progress", cause)
}

func decode(body io.Reader, into *control.EnrollmentRequest) error {
	text, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(TooLarge, "enrollment must have at most %d bytes", maxBody)
	case err != nil:
		return refuse(Malformed, "cannot read enrollment: %s", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return refuse(Malformed, `enrollment must be JSON, such as {"token":"...","request":"..."}: %s`, err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	// A pod enrolls once a day. Connections compete for the limits of the port, and for them the listener is the queue.
	// Clients that repeat requests over a thousand open ones compete with the probes and the webhook for each moment of
	// CPU time.
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // The client has disconnected.
	}
}
