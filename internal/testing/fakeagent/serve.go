package fakeagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// bodyMax is more than any document.
	bodyMax = 1 << 20
	// silenceMax is how long a stream says nothing, as that of an agent.
	silenceMax = 5 * time.Second
)

// handler is the agent's API for the operator.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+control.ReportsPath, a.stream)
	mux.HandleFunc(control.GroupsPath, a.call)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names, err := identity.Peer(*r.TLS)
		if err == nil && !names.Has(control.Operator) {
			err = fmt.Errorf("this is for the operator, and not for %s", names)
		}
		if err != nil {
			refuse(w, http.StatusForbidden, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// call is told something.
func (a *Agent) call(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	told := Call{Method: r.Method, Path: r.URL.RequestURI(), Body: strings.TrimSpace(string(body))}
	a.mu.Lock()
	a.calls = append(a.calls, told)
	asked := a.refuse
	a.mu.Unlock()
	if asked != nil {
		if status := asked(told); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	switch err := a.follow(told); {
	case errors.Is(err, errNotIn):
		refuse(w, http.StatusNotFound, err)
	case err != nil:
		refuse(w, http.StatusBadRequest, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(control.ErrorResponse{Error: err.Error()}) // Whoever asked has gone.
}

// stream says how all groups stand, and then what changes. Whoever reads slowly
// hears how it stands then, and not all that was.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	said := map[string]uint64{}
	a.mu.Lock()
	dropped := a.dropped
	a.mu.Unlock()
	text, news := a.unsaid(nil, said)
	text = event(text, control.EventCurrent, control.Agent{Pod: a.role.Pod, Life: a.life, Build: "understudy", Groups: a.role.Groups})
	silence := time.NewTicker(silenceMax)
	defer silence.Stop()
	send := func() error {
		if len(text) == 0 {
			return nil
		}
		_, err := w.Write(text)
		return errors.Join(err, controller.Flush())
	}
	if send() != nil {
		return
	}
	a.streams.Add(1)
	defer a.streams.Add(-1)
	for {
		select {
		case <-news:
			text, news = a.unsaid(text[:0], said)
		case <-silence.C:
			text = append(text[:0], ":\n\n"...)
		case <-dropped:
			return
		case <-r.Context().Done():
			return
		}
		if send() != nil {
			return
		}
	}
}

// unsaid appends the events of all that wasn't said, and returns what is closed
// when there is more.
func (a *Agent) unsaid(text []byte, said map[string]uint64) ([]byte, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for group, p := range a.parts {
		before, known := said[group]
		switch {
		case before == p.change || p.left && !known:
			continue
		case p.left:
			text = event(text, control.EventLeft, control.Left{Group: group, UID: p.report.UID})
			delete(said, group)
		default:
			text = event(text, control.EventGroup, p.report)
			said[group] = p.change
		}
	}
	return text, a.news
}

func event(text []byte, kind string, data any) []byte {
	text = append(text, "event: "+kind+"\ndata: "...)
	body, err := json.Marshal(data)
	if err != nil {
		panic("what an agent says can't be encoded: " + err.Error()) // Its types are plain.
	}
	return append(append(text, body...), "\n\n"...)
}
