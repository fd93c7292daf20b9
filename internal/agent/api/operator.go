package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// OperatorAgent is an agent as its operator sees it.
type OperatorAgent interface {
	Groups
	// Reports begins with the present state.
	Reports() Reports
	// ApplyDocument takes a group's document over, and LeaveGroup leaves a group.
	ApplyDocument(ctx context.Context, group string, document []byte) error
	LeaveGroup(ctx context.Context, group, uid string) error
	// SetEligible withholds this process from leading, or lets it lead again.
	SetEligible(ctx context.Context, group string, standing bool) error
}

// Reports are what the operator wants to know, in order. What has been outdated
// before it was fetched is left out.
type Reports interface {
	// Next is the kind of an event, and what it has.
	Next(ctx context.Context) (Event, error)
	Close()
}

// Event is one of the stream of reports: see package control.
type Event struct {
	Kind string
	Data any
}

// What can be wrong with a document.
var (
	// ErrOutdated: a newer one is known.
	ErrOutdated = errors.New("a newer document is known")
	// ErrUnknownGroup: the agent's pod doesn't name the group.
	ErrUnknownGroup = errors.New("this pod is in no such group")
	// ErrInvalidDocument: it makes no sense, or not after the one before.
	ErrInvalidDocument = errors.New("the document is refused")
)

const (
	// streamsMax is how many streams of reports there can be: one for each of the
	// operator's replicas, and for those that have just been replaced.
	streamsMax = 8
	// documentMax has room for a thousand members with the longest names.
	documentMax = 1 << 20
)

type operator struct {
	agent   OperatorAgent
	streams seats
}

// NewForOperator is the API of an agent for its operator. Everything but health and
// metrics asks for the operator's certificate: see control.Operator.
func NewForOperator(agent OperatorAgent, metrics http.Handler) http.Handler {
	o := &operator{agent: agent, streams: make(seats, streamsMax)}
	common := &api{groups: agent}
	const of = control.GroupsPath + "{group}"
	mux := http.NewServeMux()
	mux.Handle(control.ReportsPath, operatorOnly(methods{http.MethodGet: o.reports}))
	mux.Handle(of, operatorOnly(methods{http.MethodPut: o.take, http.MethodDelete: o.leave}))
	mux.Handle(of+control.StepDownPath, operatorOnly(methods{http.MethodPost: common.of(stepDown)}))
	mux.Handle(of+control.EligibilityPath, operatorOnly(methods{http.MethodPut: o.standing}))
	mux.Handle("/healthz", methods{http.MethodGet: healthz})
	mux.Handle("/readyz", methods{http.MethodGet: common.readyz})
	mux.Handle("/metrics", methods{http.MethodGet: metrics.ServeHTTP})
	return plainly(mux)
}

// operatorOnly wants the operator's certificate. That it is valid, the handshake
// has found out.
func operatorOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			refuse(w, http.StatusForbidden, errors.New("this is for the operator, over TLS"))
			return
		}
		names, err := identity.PeerNames(*r.TLS)
		switch {
		case err != nil:
			refuse(w, http.StatusForbidden, fmt.Errorf("this is for the operator: %w", err))
		case !names.Has(control.Operator):
			refuse(w, http.StatusForbidden, fmt.Errorf("this is for the operator, %s, and not for %s", control.Operator, names))
		default:
			// What was shown counts no longer than it is valid.
			ctx, cancel := context.WithDeadline(r.Context(), r.TLS.PeerCertificates[0].NotAfter)
			defer cancel()
			handler.ServeHTTP(w, r.WithContext(ctx))
		}
	})
}

// reports tells all that becomes of the groups.
func (o *operator) reports(w http.ResponseWriter, r *http.Request) {
	s, ok := open(w, r, o.streams)
	if !ok {
		return
	}
	defer o.streams.leave()
	reports := o.agent.Reports()
	defer reports.Close()
	if s.begin() != nil {
		return
	}
	pump(r.Context(), s, reports.Next, func(e Event) error { return s.event(e.Kind, "", e.Data) })
}

func (o *operator) take(w http.ResponseWriter, r *http.Request) {
	document, err := io.ReadAll(http.MaxBytesReader(w, r.Body, documentMax))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Errorf("a document can have %d bytes at most", documentMax))
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, fmt.Errorf("the document ended early: %w", err))
		return
	}
	o.done(w, o.agent.ApplyDocument(r.Context(), r.PathValue("group"), document))
}

func (o *operator) leave(w http.ResponseWriter, r *http.Request) {
	uid := r.URL.Query().Get("uid")
	if uid == "" {
		refuse(w, http.StatusBadRequest, errors.New("say which group of this name is to be left, as in ?uid=6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b"))
		return
	}
	o.done(w, o.agent.LeaveGroup(r.Context(), r.PathValue("group"), uid))
}

func (o *operator) standing(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Eligible *bool `json:"eligible"`
	}
	if !read(w, r, &request) {
		return
	}
	if request.Eligible == nil {
		refuse(w, http.StatusBadRequest, errors.New(`say whether it may lead, as in {"eligible":false}`))
		return
	}
	o.done(w, o.agent.SetEligible(r.Context(), r.PathValue("group"), *request.Eligible))
}

// done answers when that was done.
func (o *operator) done(w http.ResponseWriter, err error) {
	writesSoon(w)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrOutdated):
		refuse(w, http.StatusConflict, err)
	case errors.Is(err, ErrUnknownGroup):
		refuse(w, http.StatusNotFound, err)
	case errors.Is(err, ErrInvalidDocument):
		refuse(w, http.StatusUnprocessableEntity, err)
	default:
		fail(w, err)
	}
}
