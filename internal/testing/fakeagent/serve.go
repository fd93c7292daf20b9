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
	// bodyMax exceeds the size of every document.
	bodyMax = 1 << 20
	// silenceMax is the interval of keep-alive comments, as in a real agent.
	silenceMax = 5 * time.Second
)

// handler is the agent's API for the operator.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+control.ReportsPath, a.stream)
	mux.HandleFunc(control.GroupsPath, a.call)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names, err := identity.PeerNames(*r.TLS)
		if err == nil && !names.Has(control.Operator) {
			err = fmt.Errorf("this API is for the operator, not for %s", names)
		}
		if err != nil {
			refuse(w, http.StatusForbidden, control.ErrorResponse{Error: err.Error()})
			return
		}
		if a.identity.Witness {
			http.StripPrefix(control.NamespacePath(a.identity.Namespace), mux).ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// call handles a command.
func (a *Agent) call(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
	if err != nil {
		refuse(w, http.StatusBadRequest, control.ErrorResponse{Error: err.Error()})
		return
	}
	call := Call{Method: r.Method, Path: r.URL.RequestURI(), Body: strings.TrimSpace(string(body))}
	a.mu.Lock()
	a.calls = append(a.calls, call)
	refusal := a.refuse
	a.mu.Unlock()
	if refusal != nil {
		if status := refusal(call); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	switch err := a.handle(call); {
	case errors.Is(err, errNotMember):
		refuse(w, http.StatusNotFound, control.ErrorResponse{Error: err.Error()})
	case err != nil:
		refuse(w, http.StatusBadRequest, control.ErrorResponse{Error: err.Error()})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func refuse(w http.ResponseWriter, code int, response control.ErrorResponse) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(response) // The client has disconnected.
}

// stream sends the present state of all groups and then every change. A slow reader
// receives only the latest state of each group.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	sent := map[string]uint64{}
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	text, changes := a.pending(nil, sent)
	text = event(text, control.EventCurrent,
		control.Agent{
			Pod: a.identity.Pod, Life: a.life, Build: "fakeagent", Groups: a.identity.Groups, Identity: a.identity.State,
		})
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
		case <-changes:
			text, changes = a.pending(text[:0], sent)
		case <-silence.C:
			text = append(text[:0], ":\n\n"...)
		case <-closed:
			return
		case <-r.Context().Done():
			return
		}
		if send() != nil {
			return
		}
	}
}

// pending appends the events that a stream hasn't sent yet. It returns the channel that is closed at the next change.
func (a *Agent) pending(text []byte, sent map[string]uint64) ([]byte, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for group, p := range a.groups {
		last, known := sent[group]
		switch {
		case last == p.change || p.left && !known:
			continue
		case p.left:
			text = event(text, control.EventLeft, control.Left{Group: group, UID: p.report.UID})
			delete(sent, group)
		default:
			text = event(text, control.EventGroup, p.report.WithoutUsualRows())
			sent[group] = p.change
		}
	}
	return text, a.changes
}

func event(text []byte, kind string, data any) []byte {
	text = append(text, "event: "+kind+"\ndata: "...)
	body, err := json.Marshal(data)
	if err != nil {
		panic("cannot encode a report: " + err.Error()) // All its types can be encoded.
	}
	return append(append(text, body...), "\n\n"...)
}
