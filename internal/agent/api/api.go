// Package api serves the HTTP APIs of an agent. Responses are a line of JSON or a stream of server-sent events.
//
// The local API is for the application in the same pod. Over loopback it has no authentication: every local process may
// use it, and only requests from web pages are rejected. Over a Unix socket, it accepts certain users only: see
// RestrictUsers. The other API is for the operator: it requires TLS and the operator's certificate, except for the
// status of the health checks.
//
// The numbers of streams and of connections are limited (see package connlimit), and the local API limits the rates of
// requests (see lane). A client that doesn't read is disconnected after 10 s. Streams send a comment every 5 s.
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
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// Groups provides the groups in which the agent takes part.
type Groups interface {
	Names() []string
	Find(name string) (Group, bool)
	// Expects reports whether the agent will take part in a group once it has received the group's document.
	Expects(name string) bool
	// Problems returns one line for each reason why the agent isn't ready, and for each problem that doesn't prevent
	// that, such as one of a peer.
	Problems() (own, others []string)
}

// Group is the part of group.Group that the API uses.
type Group interface {
	// AwaitRoundTrip returns when the group has handled all that it received before.
	AwaitRoundTrip(ctx context.Context) error
	Leader() group.Leader
	// Ineligible returns why this process may not be elected, and Penalty until when it is held back.
	Ineligible() group.Ineligibility
	Penalty() (until time.Time, shortTenures int)
	LeaderWithPromise(ctx context.Context, atMost time.Duration) (group.Leader, error)
	RenewSession(ctx context.Context, session string) (group.Leader, error)
	Status(ctx context.Context) (group.Status, error)
	Journal(ctx context.Context) (journal.Journal, error)
	DrainTimeout() time.Duration
	Lease() time.Duration
	Watch() Watcher
	OpenSession(ctx context.Context, renews bool) (Session, error)
	ConfirmStopped(ctx context.Context, session string, term uint64) error
	StepDown(ctx context.Context, to string) (group.Leader, error)
}

// Watcher returns the changes of a group one after the other.
type Watcher interface {
	Next(ctx context.Context) (group.Leader, error)
}

// Session returns the events for an application one after the other.
type Session interface {
	ID() string
	Next(ctx context.Context) (group.SessionEvent, error)
	Close()
}

// The limits for the streams of an application that forgets to close them. A stream takes
// about 30 KiB of memory. The limits are separate, so that watches can't prevent a session.
// A pod in a hundred groups may have four sessions and two watches of each.
const (
	sessionsMax     = 400
	watchersMax     = 200
	streamsPerGroup = 128
)

type api struct {
	groups   Groups
	watchers *slots
	sessions *slots
}

// New returns the local API of the groups. It serves metrics at /metrics, unless that is nil.
func New(groups Groups, metrics http.Handler) http.Handler {
	mux, limits := http.NewServeMux(), newLanes()
	for path, handlers := range routes(groups, metrics, limits) {
		mux.Handle(path, handlers)
	}
	strict := strictPaths(mux)
	refuse := limits.refusals.limit(func(w http.ResponseWriter, r *http.Request) {
		if err := rejectWebPage(r); err != nil {
			writeError(w, http.StatusForbidden, err)
			return
		}
		strict.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connlimit.OfRequest(r).Use()
		setHeaders(w)
		// What a handler serves waits in the lane of that handler, and all else in that of refusals.
		handler, _ := mux.Handler(r)
		handlers, found := handler.(methods)
		if !found || handlers.find(r.Method) == nil || !isCanonical(r) || rejectWebPage(r) != nil {
			refuse(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// routes returns the handlers of the local API by path. docs/openapi.yaml describes them.
func routes(groups Groups, metrics http.Handler, l *lanes) map[string]methods {
	a := &api{groups: groups, watchers: newSlots(watchersMax, streamsPerGroup), sessions: newSlots(sessionsMax,
		streamsPerGroup)}
	get := func(limits *lane, handle http.HandlerFunc) methods {
		return methods{http.MethodGet: limits.limit(handle)}
	}
	post := func(limits *lane, handle http.HandlerFunc) methods {
		return methods{http.MethodPost: limits.limit(handle)}
	}
	all := map[string]methods{
		"/v1/groups":                                   get(&l.queries, a.listGroups),
		"/v1/renewals":                                 post(&l.sessions, a.renew(&l.sessions)),
		"/v1/groups/{group}/leader":                    {http.MethodGet: l.forLeader(a.withGroup(getLeader))},
		"/v1/groups/{group}/status":                    get(&l.details, a.withGroup(getStatus)),
		"/v1/groups/{group}" + journal.Path:            get(&l.details, a.withGroup(getJournal)),
		"/v1/groups/{group}/watch":                     get(&l.queries, a.withGroup(a.watch)),
		"/v1/groups/{group}/session":                   get(&l.sessions, a.withGroup(a.session)),
		"/v1/groups/{group}/session/{session}/stopped": post(&l.sessions, a.withGroup(confirmStopped)),
		"/v1/groups/{group}/step-down":                 post(&l.queries, a.withGroup(stepDown)),
		"/healthz":                                     get(&l.probes, newHealth(groups).serve),
		"/readyz":                                      get(&l.probes, a.readyz),
	}
	if metrics != nil {
		all["/metrics"] = get(&l.details, metrics.ServeHTTP)
	}
	return all
}

func setHeaders(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// strictPaths responds with 404 to paths that aren't in canonical form.
func strictPaths(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w)
		// The mux would redirect a path such as /v1//groups, with an HTML body.
		if _, pattern := mux.Handler(r); pattern == "" || !isCanonical(r) {
			writeError(w, http.StatusNotFound, fmt.Errorf("path %q not found", r.URL.Path))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isCanonical(r *http.Request) bool { return path.Clean(r.URL.Path) == r.URL.Path }

// methods has the handlers of a path, by method. GET includes HEAD.
type methods map[string]http.HandlerFunc

func (m methods) find(method string) http.HandlerFunc {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return m[method]
}

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handle := m.find(r.Method); handle != nil {
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
	writeError(w, http.StatusMethodNotAllowed,
		fmt.Errorf("method %s is not allowed, use %s", r.Method, strings.Join(allowed, " or ")))
}

func (a *api) withGroup(handle func(Group, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g, missing := a.find(r.PathValue("group"))
		if missing != nil {
			writeJSON(w, missing.status, missing)
			return
		}
		handle(g, w, r)
	}
}

func (a *api) find(name string) (Group, *failure) {
	g, ok := a.groups.Find(name)
	switch {
	case ok:
		return g, nil
	case a.groups.Expects(name):
		return nil, &failure{http.StatusServiceUnavailable, fmt.Sprintf(
			"group %s is not running: this agent has no document of it", name), reasonNoDocument}
	}
	return nil, &failure{
		http.StatusNotFound, fmt.Sprintf("group %q not found: GET /v1/groups lists the groups of this agent", name), "",
	}
}

func (a *api) listGroups(w http.ResponseWriter, _ *http.Request) {
	names := a.groups.Names()
	if names == nil {
		names = []string{}
	}
	writeJSON(w, http.StatusOK, map[string][]string{"groups": names})
}

func getStatus(g Group, w http.ResponseWriter, r *http.Request) {
	s, err := g.Status(r.Context())
	if err != nil {
		writeGroupError(w, err)
		return
	}
	s.Leader = g.Leader()   // It may have changed since Status.
	s.RemainingMillis = nil // A client must not act on it: there is no promise.
	writeJSON(w, http.StatusOK, s)
}

func getJournal(g Group, w http.ResponseWriter, r *http.Request) {
	j, err := g.Journal(r.Context())
	if err != nil {
		writeGroupError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, j)
}

func confirmStopped(g Group, w http.ResponseWriter, r *http.Request) {
	var request struct {
		Term uint64 `json:"term"`
	}
	if !readJSON(w, r, bodyMax, &request) {
		return
	}
	if request.Term == 0 {
		writeError(w, http.StatusBadRequest, errors.New(`term must be that of the stop event, as in {"term":279502082}`))
		return
	}
	if err := g.ConfirmStopped(r.Context(), r.PathValue("session"), request.Term); err != nil {
		writeGroupError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func stepDown(g Group, w http.ResponseWriter, r *http.Request) {
	var request struct {
		To string `json:"to"`
	}
	if !readJSON(w, r, bodyMax, &request) {
		return
	}
	l, err := g.StepDown(r.Context(), request.To)
	extendWriteDeadline(w)
	if err != nil {
		writeGroupError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, l)
}

// readyz responds with the reasons why the agent isn't ready. With the parameter verbose, it
// adds other problems, and in which groups this process may not be elected, or is held back: such an agent is ready
// nevertheless, because it votes.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) {
	code, lines := http.StatusOK, []string{"ok"}
	own, others := a.groups.Problems()
	if len(own) > 0 {
		code, lines = http.StatusServiceUnavailable, own
	}
	if r.URL.Query().Has("verbose") {
		lines = append(lines, others...)
		for _, name := range a.groups.Names() {
			g, ok := a.groups.Find(name)
			if !ok {
				continue
			}
			if g.Ineligible() != group.Eligible {
				lines = append(lines, fmt.Sprintf("group %s: not eligible: %s", name, g.Ineligible()))
			}
			if until, short := g.Penalty(); short > 0 {
				lines = append(lines, fmt.Sprintf("group %s: held back until %s, because its last %d tenures were short: "+
					"see why they ended", name, until.Format(time.TimeOnly+" UTC"), short))
			}
		}
	}
	writeText(w, code, lines...)
}

const (
	// roundTripMax is how long a group may take to respond to /healthz. It is less than
	// the default timeout of a kubelet's probe, which then shows the reason.
	roundTripMax = 500 * time.Millisecond
	// checkInterval is the minimum time between checks. Requests in between get the last
	// result, so that many requests don't keep the groups busy.
	checkInterval = 100 * time.Millisecond
)

// health checks that the goroutine of each group makes progress. An agent in which one of
// them is blocked must be restarted: it neither leads nor grants.
type health struct {
	groups Groups

	mu      sync.Mutex
	checked time.Time
	stuck   []string
}

func newHealth(groups Groups) *health { return &health{groups: groups} }

func (h *health) serve(w http.ResponseWriter, r *http.Request) {
	if stuck := h.check(r.Context()); len(stuck) > 0 {
		writeText(w, http.StatusServiceUnavailable, stuck...)
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// check returns one line for each group that doesn't respond. Concurrent requests wait for
// the same check, so it goes on when the first one ends.
func (h *health) check(ctx context.Context) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.checked) < checkInterval {
		return h.stuck
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTripMax)
	defer cancel()
	names := h.groups.Names()
	responded := make([]bool, len(names))
	var checks sync.WaitGroup
	for i, name := range names {
		checks.Go(func() {
			g, ok := h.groups.Find(name)
			// An error before the deadline means that the agent has left the group.
			responded[i] = !ok || g.AwaitRoundTrip(ctx) == nil || ctx.Err() == nil
		})
	}
	checks.Wait()
	h.stuck = nil
	for i, name := range names {
		if !responded[i] {
			h.stuck = append(h.stuck, fmt.Sprintf("group %s: the event loop didn't respond within %s", name, roundTripMax))
		}
	}
	h.checked = time.Now()
	return h.stuck
}
