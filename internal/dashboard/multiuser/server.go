// Package multiuser serves the dashboard to the users of a cluster. It is read-only.
//
// A user logs in with a bearer token, or a proxy sends the token with each request. The API
// server decides who that is (TokenReview) and which groups this user may see
// (SubjectAccessReview):
//
//   - the overview has the groups of the namespaces in which the user may list and watch
//     ElectionGroups
//   - the page of a group is served if the user may get and watch this group
//
// Both are decided again every recheckInterval while a page is open. So a stream ends within
// a minute after a right was revoked, after the token has expired, or after the last
// successful decision if the API server doesn't respond.
//
// Before a client is authenticated, it can use only what package httpserver permits, and
// submit tokens at a limited rate (attempts).
//
// # What is not guaranteed
//
// The server reads all groups, so its process can disclose all of them. It sees the tokens
// of its users. A token for an audience of its own is of no use elsewhere; a token for the
// API server gives the server all rights of its user.
package multiuser

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/dashboard"
)

// Options configure a Server.
type Options struct {
	Store *dashboard.Store
	// Client creates TokenReviews and SubjectAccessReviews.
	Client client.Writer
	// Audiences are those that tokens may be for; none means those of the API server.
	Audiences []string
	// Hosts are the names and addresses by which users reach the server.
	Hosts []string
	// Grafana is that of the sessions.
	Grafana string
	Log     *slog.Logger
}

// Server serves the dashboard to the users of a cluster.
type Server struct {
	Options

	reviewer *reviewer
	sessions *sessions
	attempts *attempts
	closed   chan struct{}
	streams  openStreams
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{
		Options: o, sessions: newSessions(), attempts: newAttempts(),
		closed: make(chan struct{}),
	}
	s.reviewer = newReviewer(o.Client, o.Audiences, s.streams.users)
	return s
}

// Close ends all streams. Call it once, before the port is closed.
func (s *Server) Close() { close(s.closed) }

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	assets := dashboard.Assets()
	mux.Handle("GET /", assets)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.identify(r); err != nil {
			s.refuse(w, r, err, true)
			return
		}
		assets.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("GET /login.js", serveLoginScript)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /session", s.describeSession)
	mux.HandleFunc("GET /events", s.serveGroups)
	mux.HandleFunc("GET /events/{namespace}/{name}", s.serveGroup)
	mux.HandleFunc("GET /what-if/{namespace}/{name}", s.serveWhatIf)
	guarded := dashboard.Guard(mux, dashboard.Site{Accepts: s.accepts, Address: "https://" + s.Hosts[0] + "/", Forms: "'self'"})

	all := http.NewServeMux()
	all.Handle("/", guarded)
	// The kubelet addresses the pod by its IP address.
	all.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	all.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.Store.Connection().State == dashboard.Connecting {
			http.Error(w, "the groups have not been read yet", http.StatusServiceUnavailable)
		}
	})
	return all
}

// accepts reports whether a Host header names this server, at any port.
func (s *Server) accepts(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return slices.Contains(s.Hosts, strings.ToLower(name))
}

// identity is on whose behalf a request is made.
type identity struct {
	*user

	token string
	// session is nil if the request has the token.
	session *session
}

var (
	errNoToken  = errors.New("log in, or send a bearer token")
	errTooOften = errors.New("too many unknown tokens; retry in a few seconds")
)

// identify returns the identity of a request.
func (s *Server) identify(r *http.Request) (*identity, error) {
	id := &identity{}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if id.token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || id.token == "" {
			return nil, errNoToken
		}
	} else {
		cookie, err := r.Cookie(cookieName)
		if err != nil {
			return nil, errNoToken
		}
		if id.session = s.sessions.use(cookie.Value); id.session == nil {
			return nil, errNoToken
		}
		id.token = id.session.token
	}
	var err error
	id.user, err = s.authenticate(r, id.token, id.session != nil)
	if errors.Is(err, errRefused) && id.session != nil {
		s.sessions.delete(id.session)
	}
	return id, err
}

// authenticate returns the user of a token. Tokens of sessions, and others that the API
// server has accepted before, are exempt from the limit of attempts.
func (s *Server) authenticate(r *http.Request, token string, known bool) (*user, error) {
	if !known && !s.reviewer.knows(token) && !s.attempts.allow(r) {
		return nil, errTooOften
	}
	return s.reviewer.authenticate(r.Context(), token)
}

// describeSession responds with the name of the user, or without one.
func (s *Server) describeSession(w http.ResponseWriter, r *http.Request) {
	id, err := s.identify(r)
	switch {
	case err == nil:
		dashboard.WriteSession(w, dashboard.Session{User: id.Username, Grafana: s.Grafana})
	case errors.Is(err, errNoToken) || errors.Is(err, errRefused):
		dashboard.WriteSession(w, dashboard.Session{})
	default:
		s.refuse(w, r, err, false)
	}
}

// refuse responds with an error. A page is redirected to the form, unless a proxy sends the
// token: the form couldn't change it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error, page bool) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, errNoToken) || errors.Is(err, errRefused):
		if page && r.Header.Get("Authorization") == "" {
			http.Redirect(w, r, "login", http.StatusSeeOther)
			return
		}
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", "Bearer")
	case errors.Is(err, errTooOften):
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "5")
	case errors.Is(err, errTooManyStreams):
	case errors.Is(err, context.Canceled): // The client is gone.
	default:
		s.Log.Warn("cannot ask the API server", "error", err)
		err = errors.New("the API server does not respond; retry later")
	}
	http.Error(w, err.Error(), status)
}
