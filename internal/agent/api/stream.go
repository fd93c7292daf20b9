package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

const (
	// nextWriteTimeout bounds each write to a client that doesn't read.
	nextWriteTimeout = 10 * time.Second
	// keepAliveInterval is the maximum time between writes to a stream. Comments without
	// text show the client that the stream is alive, and detect unreachable clients.
	keepAliveInterval = 5 * time.Second
)

// stream is a response of server-sent events. Each event is flushed at once. Because the stream takes events from the
// group only when the previous one is written, a client that doesn't read blocks only its own stream. It is
// disconnected after nextWriteTimeout.
type stream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	interval   time.Duration
}

// openStream checks a request for a stream, and acquires a slot for it, which the caller
// must release. If it returns nil, it has written an error.
func openStream(w http.ResponseWriter, r *http.Request, free *slots, group string,
	groups int,
) (s *stream, release func()) {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		writeError(w, http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed for a stream, use GET", r.Method))
		return nil, nil
	case r.ContentLength != 0:
		// While the server hasn't read a body, it doesn't detect a disconnected client.
		writeError(w, http.StatusBadRequest, errors.New("the request for a stream must have no body"))
		return nil, nil
	}
	freeSlot, err := free.acquire(group, groups)
	conn := connlimit.OfRequest(r)
	if err == nil && !conn.Pin() {
		freeSlot()
		err = errors.New("too many connections with streams")
	}
	if err != nil {
		writeJSON(w, http.StatusServiceUnavailable, failure{Error: err.Error(), Reason: reasonTooManyStreams})
		return nil, nil
	}
	s = &stream{w: w, controller: http.NewResponseController(w), interval: keepAliveInterval}
	return s, func() {
		conn.Unpin()
		freeSlot()
	}
}

func (s *stream) begin() error {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	return s.send("")
}

func (s *stream) send(text string) error {
	extendWriteDeadline(s.w)
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.controller.Flush()
}

// event sends an event. kind may be empty, and must not contain line breaks.
func (s *stream) event(kind string, data any) error {
	line, err := json.Marshal(data)
	if err != nil {
		return err
	}
	text := "data: " + string(line) + "\n\n"
	if kind != "" {
		text = "event: " + kind + "\n" + text
	}
	return s.send(text)
}

func (s *stream) comment(text string) error {
	return s.send(":" + text + "\n\n")
}

// pump sends the items that next returns until either side ends the stream.
func pump[T any](ctx context.Context, s *stream, next func(context.Context) (T, error), send func(T) error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, s.interval)
		item, err := next(waiting)
		cancel()
		switch {
		case err == nil:
			err = send(item)
		case ctx.Err() != nil:
		case errors.Is(err, context.DeadlineExceeded):
			err = s.comment("")
		default:
			_ = s.comment(" " + err.Error())
		}
		if err != nil {
			return
		}
	}
}

// watch streams the changes of a group. It omits the remaining time of the tenure,
// which has changed since the change was recorded.
func (a *api) watch(g Group, w http.ResponseWriter, r *http.Request) {
	s, release := openStream(w, r, a.watchers, r.PathValue("group"), len(a.groups.Names()))
	if s == nil {
		return
	}
	defer release()
	watcher := g.Watch()
	if s.begin() != nil {
		return
	}
	var last group.Leader
	pump(r.Context(), s, watcher.Next, func(state group.Leader) error {
		if state.RemainingMillis, state.HandsOver = nil, false; state == last {
			return nil
		}
		last = state
		return s.event("", state)
	})
}

// session opens a session and streams its events. The session is closed when the stream ends, for any reason.
func (a *api) session(g Group, w http.ResponseWriter, r *http.Request) {
	renews, err := parseRenews(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	s, release := openStream(w, r, a.sessions, r.PathValue("group"), len(a.groups.Names()))
	if s == nil {
		return
	}
	defer release()
	session, err := g.OpenSession(r.Context(), renews)
	if err != nil {
		writeGroupError(w, err)
		return
	}
	defer session.Close()
	if s.begin() != nil {
		return
	}
	introduce := func() error {
		return s.event(string(group.SettingsChanged), struct {
			Session     string `json:"session"`
			DrainMillis int64  `json:"drainMillis"`
			LeaseMillis int64  `json:"leaseMillis,omitempty"`
		}{session.ID(), g.DrainTimeout().Milliseconds(), g.Lease().Milliseconds()})
	}
	if introduce() != nil {
		return
	}
	pump(r.Context(), s, session.Next, func(event group.SessionEvent) error {
		if event.Kind == group.SettingsChanged {
			return introduce()
		}
		return s.event(string(event.Kind), event)
	})
}

// slots limits the number of streams: in total, so that they fit in memory, and for each group, so that an application
// that forgets to close its streams doesn't affect the other groups of the pod.
type slots struct {
	total, perGroup int

	mu   sync.Mutex
	all  int
	used map[string]int
}

func newSlots(total, perGroup int) *slots {
	return &slots{total: total, perGroup: perGroup, used: map[string]int{}}
}

// acquire acquires a slot for a stream of a group, if the agent is in this number of
// groups. Each group has an equal share, and at most perGroup slots.
func (s *slots) acquire(group string, groups int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := min(s.perGroup, s.total/max(1, groups))
	switch {
	case s.used[group] >= share:
		return nil, fmt.Errorf("too many open streams: at most %d are allowed", share)
	case s.all >= s.total: // There were fewer groups when other streams began.
		return nil, fmt.Errorf("too many open streams: at most %d are allowed in all groups", s.total)
	}
	s.all++
	s.used[group]++
	return sync.OnceFunc(func() { s.release(group) }), nil
}

func (s *slots) release(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.used[group]--; s.used[group] == 0 {
		delete(s.used, group)
	}
}
