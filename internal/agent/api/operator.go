package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// OperatorAgent is an agent, as its operator uses it.
type OperatorAgent interface {
	Groups
	// Reports subscribes to reports, without the usual rows of their tables. The first ones are the current state.
	Reports() Reports
	// ApplyDocument applies a document of a group.
	ApplyDocument(ctx context.Context, group string, document []byte) error
	// LeaveGroup leaves the group with this UID, unless its document has a higher revision.
	LeaveGroup(ctx context.Context, group, uid string, revision int64) error
	// SetEligible excludes this process from the election, or readmits it.
	SetEligible(ctx context.Context, group string, eligible bool) error
}

// Reports returns the reports for the operator one after the other. It skips those that are outdated.
type Reports interface {
	// Next waits for the next event.
	Next(ctx context.Context) (Event, error)
	Close()
}

// Event is an event of the stream of reports: see package control.
type Event struct {
	Kind string
	Data any
}

// The errors of OperatorAgent.
var (
	// ErrUnknownGroup: the annotation of the agent's pod doesn't name the group.
	ErrUnknownGroup = errors.New("the pod is not in the group")
	// ErrInvalidDocument: the document is invalid, or can't follow the previous one.
	ErrInvalidDocument = errors.New("invalid document")
)

// OutdatedError is the error of OperatorAgent for a document if the agent has a newer one, or
// has left the group with that revision.
type OutdatedError struct {
	// Lowest is the lowest revision that the agent accepts.
	Lowest, Got int64
}

func (e OutdatedError) Error() string {
	return fmt.Sprintf("a newer document is known: revision must be at least %d, got %d", e.Lowest, e.Got)
}

const (
	// streamsMax limits the streams of reports. There is one for each replica of the
	// operator, and for those that have just been replaced.
	streamsMax = 8
	// documentMax has room for a hundred members with the longest names.
	documentMax = 256 << 10
)

type operatorAPI struct {
	agent   OperatorAgent
	streams *slots
}

// NewForOperator returns the API for the operator. All paths require the operator's
// certificate, with two exceptions: control.MetricsReader may read metrics and health, and
// a client without a certificate gets the status of the health checks.
func NewForOperator(agent OperatorAgent, metrics http.Handler) http.Handler {
	o := &operatorAPI{agent: agent, streams: newSlots(streamsMax, streamsMax)}
	common := &api{groups: agent}
	const groupPath = control.GroupsPath + "{group}"
	mux := http.NewServeMux()
	mux.Handle(control.ReportsPath, operatorOnly(methods{http.MethodGet: o.streamReports}))
	mux.Handle(groupPath, operatorOnly(methods{http.MethodPut: o.applyDocument, http.MethodDelete: o.leaveGroup}))
	mux.Handle(groupPath+control.StepDownPath, operatorOnly(methods{http.MethodPost: common.withGroup(stepDown)}))
	mux.Handle(groupPath+control.EligibilityPath, operatorOnly(methods{http.MethodPut: o.setEligible}))
	mux.Handle("/healthz", public(newHealth(agent).serve))
	mux.Handle("/readyz", public(common.readyz))
	mux.Handle("/metrics", restricted(methods{http.MethodGet: metrics.ServeHTTP}, knownClients...))
	strict := strictPaths(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if checkCertificate(r, knownClients) != nil {
			endConnection(w, r)
		}
		strict.ServeHTTP(w, r)
	})
}

// ForNamespaces returns the API of a witness: that of the process, and those of namespaces, for the operator only. use
// returns the one of a namespace, and what to call afterwards.
func ForNamespaces(process http.Handler,
	use func(namespace string) (handler http.Handler, done func(), err error),
) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", process)
	mux.Handle(control.NamespacePath("{namespace}/"), operatorOnly(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request,
	) {
		namespace := r.PathValue("namespace")
		handler, done, err := use(namespace)
		if err != nil {
			writeError(w, http.StatusUnprocessableEntity, err)
			return
		}
		defer done()
		http.StripPrefix(control.NamespacePath(namespace), handler).ServeHTTP(w, r)
	})))
	return mux
}

// knownClients may keep their connections.
var knownClients = identity.Names{control.Operator, control.MetricsReader}

func operatorOnly(handler http.Handler) http.Handler { return restricted(handler, control.Operator) }

func restricted(handler http.Handler, names ...identity.Name) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkCertificate(r, names); err != nil {
			writeError(w, http.StatusForbidden, err)
			return
		}
		conn := connlimit.OfRequest(r)
		if !conn.Pin() {
			endConnection(w, r)
			writeError(w, http.StatusServiceUnavailable, errors.New("too many connections"))
			return
		}
		defer conn.Unpin()
		// A stream ends when the certificate expires.
		ctx, cancel := context.WithDeadline(r.Context(), r.TLS.PeerCertificates[0].NotAfter)
		defer cancel()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// checkCertificate returns an error unless the client's certificate has one of these
// names. The TLS handshake has verified that the certificate is valid.
func checkCertificate(r *http.Request, allowed identity.Names) error {
	if r.TLS == nil {
		return errors.New("only the operator may use this path, over TLS")
	}
	names, err := identity.PeerNames(*r.TLS)
	if err != nil {
		return fmt.Errorf("only the operator may use this path: %w", err)
	}
	if !names.Intersects(allowed) {
		return fmt.Errorf("only the operator may use this path: certificate must be for %s, got %s", allowed, names)
	}
	return nil
}

// public serves a check of the agent's health. A client without a certificate, such as the
// kubelet, receives only the status: the reasons name groups and members.
func public(check http.HandlerFunc) http.Handler {
	detailed := restricted(methods{http.MethodGet: check}, knownClients...)
	brief := methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { check(statusOnly{w}, r) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if checkCertificate(r, knownClients) == nil {
			detailed.ServeHTTP(w, r)
			return
		}
		brief.ServeHTTP(w, r)
	})
}

// statusOnly is a response without its body.
type statusOnly struct{ http.ResponseWriter }

func (statusOnly) Write(body []byte) (int, error) { return len(body), nil }

func (w statusOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// endConnection closes the connection of a client without a certificate after the
// response. Without the deadline, the server would wait for the rest of the body first.
func endConnection(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // Some writers in tests have no deadlines.
	}
}

func (o *operatorAPI) streamReports(w http.ResponseWriter, r *http.Request) {
	s, release := openStream(w, r, o.streams, "", 1)
	if s == nil {
		return
	}
	defer release()
	reports := o.agent.Reports()
	defer reports.Close()
	if s.begin() != nil {
		return
	}
	pump(r.Context(), s, reports.Next, func(e Event) error { return s.event(e.Kind, e.Data) })
}

func (o *operatorAPI) applyDocument(w http.ResponseWriter, r *http.Request) {
	if document, ok := readBody(w, r, documentMax, "document"); ok {
		o.writeResult(w, o.agent.ApplyDocument(r.Context(), r.PathValue("group"), document))
	}
}

func (o *operatorAPI) leaveGroup(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	uid := query.Get("uid")
	if uid == "" {
		writeError(w, http.StatusBadRequest,
			errors.New("uid must be the UID of the group, as in ?uid=6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b"))
		return
	}
	revision, err := strconv.ParseInt(query.Get("revision"), 10, 64)
	if err != nil {
		writeError(w, http.StatusBadRequest,
			errors.New("revision must be that of the newest document, as in &revision=1800000000000"))
		return
	}
	o.writeResult(w, o.agent.LeaveGroup(r.Context(), r.PathValue("group"), uid, revision))
}

func (o *operatorAPI) setEligible(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Eligible *bool `json:"eligible"`
	}
	if !readJSON(w, r, bodyMax, &request) {
		return
	}
	if request.Eligible == nil {
		writeError(w, http.StatusBadRequest, errors.New(`eligible must be true or false, as in {"eligible":false}`))
		return
	}
	o.writeResult(w, o.agent.SetEligible(r.Context(), r.PathValue("group"), *request.Eligible))
}

func (o *operatorAPI) writeResult(w http.ResponseWriter, err error) {
	extendWriteDeadline(w)
	var outdated OutdatedError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &outdated):
		writeJSON(w, http.StatusConflict, control.ErrorResponse{Error: err.Error(), Revision: outdated.Lowest})
	case errors.Is(err, ErrUnknownGroup):
		writeError(w, http.StatusNotFound, err)
	case errors.Is(err, ErrInvalidDocument):
		writeError(w, http.StatusUnprocessableEntity, err)
	default:
		writeGroupError(w, err)
	}
}
