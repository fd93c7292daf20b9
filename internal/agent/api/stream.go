package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

const (
	// writePatience is how long the other side may take to make room for what it is sent.
	writePatience = 10 * time.Second
	// silenceMax is how long a stream says nothing: it shows that it is alive, and
	// notices that the other side's machine is gone.
	silenceMax = 5 * time.Second
)

// seats bounds how many have one at a time.
type seats chan struct{}

func (s seats) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s seats) leave() { <-s }

// stream is an answer of server-sent events, each of which is sent at once. A
// reader that doesn't read holds up its own stream and nothing else, until its
// patience is over: events are pulled from the group when there is room.
type stream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	silence    time.Duration
}

// open begins a stream, if the request is one for which that makes sense.
func open(w http.ResponseWriter, r *http.Request, free seats) (*stream, bool) {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, errors.New("a stream has to be read: use GET"))
		return nil, false
	case r.ContentLength != 0:
		// Not until a body has been read does the server notice that the connection broke.
		refuse(w, http.StatusBadRequest, errors.New("a stream is asked for without a body"))
		return nil, false
	case !free.take():
		refuse(w, http.StatusServiceUnavailable, fmt.Errorf("there are %d such streams already: close some", cap(free)))
		return nil, false
	}
	return &stream{w: w, controller: http.NewResponseController(w), silence: silenceMax}, true
}

// begin sends the header.
func (s *stream) begin() error {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	return s.send("")
}

// send writes the text at once.
func (s *stream) send(text string) error {
	writesSoon(s.w)
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.controller.Flush()
}

// event sends one event; kind and id may be empty. Neither has a line break in
// it, nor has JSON.
func (s *stream) event(kind, id string, data any) error {
	line, err := json.Marshal(data)
	if err != nil {
		return err
	}
	text := "data: " + string(line) + "\n\n"
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	if kind != "" {
		text = "event: " + kind + "\n" + text
	}
	return s.send(text)
}

// comment sends a line that is for people and proxies.
func (s *stream) comment(text string) error {
	return s.send(":" + text + "\n\n")
}

// pump sends what next gives until the stream is over on either side.
func pump[T any](ctx context.Context, s *stream, next func(context.Context) (T, error), send func(T) error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, s.silence)
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

// watch tells what becomes of the group. What was true when a change was
// recorded may no longer be: so it doesn't say how long a tenure lasts.
func (a *api) watch(g Group, w http.ResponseWriter, r *http.Request) {
	s, ok := open(w, r, a.watchers)
	if !ok {
		return
	}
	defer a.watchers.leave()
	watcher := g.Watch(r.Header.Get("Last-Event-ID"))
	if s.begin() != nil {
		return
	}
	pump(r.Context(), s, watcher.Next, func(change group.Change) error {
		change.Leader.RemainingMillis = nil
		return s.event("", change.ID, change.Leader)
	})
}

// session is the application's: the group learns of its end in any case.
func (a *api) session(g Group, w http.ResponseWriter, r *http.Request) {
	s, ok := open(w, r, a.sessions)
	if !ok {
		return
	}
	defer a.sessions.leave()
	session, err := g.OpenSession(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	defer session.Close()
	if s.begin() != nil {
		return
	}
	opened := struct {
		Session     string `json:"session"`
		DrainMillis int64  `json:"drainMillis"`
	}{session.ID(), g.DrainTimeout().Milliseconds()}
	if s.event("session", "", opened) != nil {
		return
	}
	pump(r.Context(), s, session.Next, func(event group.SessionEvent) error {
		return s.event(string(event.Kind), "", event)
	})
}
