package multiuser

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
	"github.com/conclave-dev/conclave/internal/net/httpserver"
)

// streamsMax is the maximum number of streams, and streamsPerUserMax that of one user. Streams that end to make room for others may still
// take some of the maximum of the port, pinnedMax, for a moment.
const (
	streamsMax        = 240
	pinnedMax         = 256
	streamsPerUserMax = 32
)

// While a page is open, its rights are decided again every recheckInterval. If that fails
// for uncertainMax, the stream ends, too.
const (
	recheckInterval = 15 * time.Second
	uncertainMax    = 40 * time.Second
)

// Limits are those of the port. A connection with TLS occupies about 50 KiB.
var Limits = httpserver.Limits{
	Connections: 192, ConnectionsPerHost: 128, Pinned: pinnedMax, Body: bodyMax, Bodies: 1 << 20, Timeout: 10 * time.Second,
}

var errTooManyStreams = errors.New("too many pages are open; close some")

// serveGroups streams the groups that the user may list and watch.
func (s *Server) serveGroups(w http.ResponseWriter, r *http.Request) {
	var visible scope
	look := func(ctx context.Context, u *user) (scope, error) {
		return s.reviewer.scope(ctx, u, s.Store.Namespaces())
	}
	s.stream(w, r, func(ctx context.Context, u *user) (err error) {
		visible, err = look(ctx, u)
		return err
	}, func(ctx context.Context, u *user) (bool, error) {
		now, err := look(ctx, u)
		return now.all == visible.all && maps.Equal(now.namespaces, visible.namespaces), err
	}, func(r *http.Request) { dashboard.StreamGroups(w, r, s.Store, visible.contains) })
}

// serveGroup streams a group that the user may get and watch. Other groups look as if they
// didn't exist.
func (s *Server) serveGroup(w http.ResponseWriter, r *http.Request) {
	visible := false
	look := func(ctx context.Context, u *user) (bool, error) {
		return s.reviewer.may(ctx, u, r.PathValue("namespace"), r.PathValue("name"), "get", "watch")
	}
	s.stream(w, r, func(ctx context.Context, u *user) (err error) {
		visible, err = look(ctx, u)
		return err
	}, func(ctx context.Context, u *user) (bool, error) {
		now, err := look(ctx, u)
		return now == visible, err
	}, func(r *http.Request) { dashboard.StreamGroup(w, r, s.Store, visible) })
}

// serveWhatIf simulates a group that the user may get.
func (s *Server) serveWhatIf(w http.ResponseWriter, r *http.Request) {
	id, err := s.identify(r)
	visible := false
	if err == nil {
		visible, err = s.reviewer.may(r.Context(), id.user, r.PathValue("namespace"), r.PathValue("name"), "get")
	}
	switch {
	case err != nil:
		s.refuse(w, r, err, false)
	case visible:
		dashboard.ServeWhatIf(w, r, s.Store.Get(dashboard.PathKey(r)))
	default:
		dashboard.ServeWhatIf(w, r, nil)
	}
}

type (
	decideFunc  func(context.Context, *user) error
	recheckFunc func(context.Context, *user) (same bool, err error)
)

// stream decides what the user may see, and serves it until that changes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, decide decideFunc, recheck recheckFunc, serve func(*http.Request)) {
	id, err := s.identify(r)
	if err == nil {
		err = decide(r.Context(), id.user)
	}
	if err != nil {
		s.refuse(w, r, err, false)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	remove, ok := s.streams.add(id.Username, cancel)
	if !ok {
		s.refuse(w, r, errTooManyStreams, false)
		return
	}
	defer remove()
	conn := connlimit.OfRequest(r)
	if !conn.Pin() {
		s.refuse(w, r, errTooManyStreams, false)
		return
	}
	defer conn.Unpin()
	go func() {
		defer cancel()
		s.supervise(ctx, id, recheck)
	}()
	serve(r.WithContext(ctx))
}

// supervise returns when a stream must end.
func (s *Server) supervise(ctx context.Context, id *identity, recheck recheckFunc) {
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	var ended chan struct{} // Without a session, it is never closed.
	if id.session != nil {
		ended = id.session.ended
	}
	certain := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case <-ended:
			return
		case <-ticker.C:
		}
		if id.session != nil && !s.sessions.extend(id.session) {
			return
		}
		began := time.Now()
		until, cancel := context.WithDeadline(ctx, certain.Add(uncertainMax))
		same, err := s.recheck(until, id, recheck)
		cancel()
		switch {
		case err == nil && same:
			certain = began
		case err == nil || errors.Is(err, errRefused) || time.Since(certain) >= uncertainMax:
			return
		}
	}
}

// recheck reports whether the token is still valid for the same user, with the same rights.
func (s *Server) recheck(ctx context.Context, id *identity, recheck recheckFunc) (bool, error) {
	u, err := s.reviewer.authenticate(ctx, id.token)
	if err != nil {
		return false, err
	}
	if u.id != id.id {
		return false, nil
	}
	return recheck(ctx, u)
}
