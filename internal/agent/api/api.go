// Package api is what an application asks its agent: HTTP on a local port, with
// a line of JSON for an answer or a stream of server-sent events.
//
// Whoever reaches the port may ask everything: it is meant for loopback, where
// the application of the same pod is. Only web pages are turned away, see
// fromWebPage.
package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// Groups are those that the agent takes part in.
type Groups interface {
	Names() []string
	Find(name string) (Group, bool)
	// Expects reports whether the agent is going to take part in a group, as soon as it
	// knows who else does.
	Expects(name string) bool
	// Problems are why the agent isn't ready, a line for each; none if it is.
	Problems() []string
}

// Group is what is asked of one.
type Group interface {
	Leader() group.Leader
	LeaderWithPromise(ctx context.Context) (group.Leader, error)
	RenewSession(ctx context.Context, session string) (group.Leader, error)
	Status(ctx context.Context) (group.Status, error)
	DrainTimeout() time.Duration
	Watch(after string) Watcher
	OpenSession(ctx context.Context) (Session, error)
	ConfirmStopped(ctx context.Context, session string, term uint64) error
	StepDown(ctx context.Context, to string) (group.Leader, error)
}

// Watcher gives the changes of a group, in order, as fast as they are asked for.
type Watcher interface {
	Next(ctx context.Context) (group.Change, error)
}

// Session gives what an application is told, in order.
type Session interface {
	ID() string
	Next(ctx context.Context) (group.SessionEvent, error)
	Close()
}

// watchersMax and sessionsMax bound what an application can hold open that
// forgets to close: a stream costs some 30 KiB, and an agent has to stay small.
// The two don't take each other's room.
const (
	watchersMax = 1024
	sessionsMax = 128
)

type api struct {
	groups   Groups
	watchers seats
	sessions seats
}

// New is the API of the groups. What metrics serves is at /metrics, unless it is nil.
func New(groups Groups, metrics http.Handler) http.Handler {
	a := &api{groups: groups, watchers: make(seats, watchersMax), sessions: make(seats, sessionsMax)}
	mux := http.NewServeMux()
	mux.Handle("/v1/groups", methods{http.MethodGet: a.list})
	mux.Handle("/v1/groups/{group}/leader", methods{http.MethodGet: a.of(leader)})
	mux.Handle("/v1/groups/{group}/status", methods{http.MethodGet: a.of(status)})
	mux.Handle("/v1/groups/{group}/watch", methods{http.MethodGet: a.of(a.watch)})
	mux.Handle("/v1/groups/{group}/session", methods{http.MethodGet: a.of(a.session)})
	mux.Handle("/v1/groups/{group}/session/{session}/stopped", methods{http.MethodPost: a.of(stopped)})
	mux.Handle("/v1/groups/{group}/step-down", methods{http.MethodPost: a.of(stepDown)})
	mux.Handle("/healthz", methods{http.MethodGet: healthz})
	mux.Handle("/readyz", methods{http.MethodGet: a.readyz})
	if metrics != nil {
		mux.Handle("/metrics", methods{http.MethodGet: metrics.ServeHTTP})
	}
	plain := plainly(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := fromWebPage(r); err != nil {
			describe(w)
			refuse(w, http.StatusForbidden, err)
			return
		}
		plain.ServeHTTP(w, r)
	})
}

// describe says what every answer is.
func describe(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// plainly serves what is asked for by its plain path.
func plainly(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		describe(w)
		// The mux would send whoever asks for /v1//groups elsewhere, and say so in HTML.
		if _, pattern := mux.Handler(r); pattern == "" || path.Clean(r.URL.Path) != r.URL.Path {
			refuse(w, http.StatusNotFound, fmt.Errorf("there is nothing at %q", r.URL.Path))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// methods are the handlers of a path. Whoever may GET may also ask for the HEAD.
type methods map[string]http.HandlerFunc

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if handle := m[method]; handle != nil {
		handle(w, r)
		return
	}
	var allowed []string
	for _, method := range slices.Sorted(maps.Keys(m)) {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is not possible here, only %s", r.Method, strings.Join(allowed, ", ")))
}

// of finds the group that a path names.
func (a *api) of(handle func(Group, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("group")
		g, ok := a.groups.Find(name)
		switch {
		case ok:
			handle(g, w, r)
		case a.groups.Expects(name):
			refuse(w, http.StatusServiceUnavailable, fmt.Errorf("this agent takes no part in %s at present: nobody has told it to", name))
		default:
			refuse(w, http.StatusNotFound, fmt.Errorf("this agent is in no group %q: GET /v1/groups lists those it is in", name))
		}
	}
}

func (a *api) list(w http.ResponseWriter, _ *http.Request) {
	names := a.groups.Names()
	if names == nil {
		names = []string{}
	}
	answer(w, http.StatusOK, map[string][]string{"groups": names})
}

// leader answers who leads.
func leader(g Group, w http.ResponseWriter, r *http.Request) {
	l, err := asked(g, r)
	if err != nil {
		fail(w, err)
		return
	}
	code := http.StatusServiceUnavailable
	if l.Leading {
		code = http.StatusOK
	}
	answer(w, code, l)
}

// asked is who leads, for the one who asks. Whoever renews a session's tenure will
// be told to stop, and who asks for the HEAD is told nothing to rely on; all others
// are promised that nobody succeeds before the time that remains is over.
func asked(g Group, r *http.Request) (group.Leader, error) {
	switch query := r.URL.Query(); {
	case query.Has("session"):
		return g.RenewSession(r.Context(), query.Get("session"))
	case r.Method == http.MethodHead:
		return g.Leader(), nil
	default:
		return g.LeaderWithPromise(r.Context())
	}
}

func status(g Group, w http.ResponseWriter, r *http.Request) {
	s, err := g.Status(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	// As in leader: the rest of it may have waited.
	s.Leader = g.Leader()
	s.RemainingMillis = nil // nothing to act on
	answer(w, http.StatusOK, s)
}

func stopped(g Group, w http.ResponseWriter, r *http.Request) {
	var request struct {
		Term uint64 `json:"term"`
	}
	if !read(w, r, &request) {
		return
	}
	if request.Term == 0 {
		refuse(w, http.StatusBadRequest, errors.New(`say in which term you stopped, as in {"term":279502082}`))
		return
	}
	if err := g.ConfirmStopped(r.Context(), r.PathValue("session"), request.Term); err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func stepDown(g Group, w http.ResponseWriter, r *http.Request) {
	var request struct {
		To string `json:"to"`
	}
	if !read(w, r, &request) {
		return
	}
	l, err := g.StepDown(r.Context(), request.To)
	writesSoon(w)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, l)
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok")
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if problems := a.groups.Problems(); len(problems) > 0 {
		plain(w, http.StatusServiceUnavailable, problems...)
		return
	}
	plain(w, http.StatusOK, "ok")
}
