package understudy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/identity"
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
	mux.HandleFunc("PUT "+control.GroupsPath+"{group}", a.putGroup)
	mux.HandleFunc("DELETE "+control.GroupsPath+"{group}", a.deleteGroup)
	mux.HandleFunc("PUT "+control.GroupsPath+"{group}"+control.Standing, a.putStanding)
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

func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(control.Refusal{Error: err.Error()}) // Whoever asked has gone.
}

// answer ends a request that changes something.
func answer(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNotIn):
		refuse(w, http.StatusNotFound, err)
	case err != nil:
		refuse(w, http.StatusBadRequest, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func read(r *http.Request, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(body, into)
}

func (a *Agent) putGroup(w http.ResponseWriter, r *http.Request) {
	var d control.Document
	err := read(r, &d)
	if err == nil && d.Group.Name != r.PathValue("group") {
		err = fmt.Errorf("the document is about the group %q", d.Group.Name)
	}
	if err == nil {
		a.take(d)
	}
	answer(w, err)
}

func (a *Agent) deleteGroup(w http.ResponseWriter, r *http.Request) {
	err := a.alter(r.PathValue("group"), func(p *part) error {
		if uid := r.URL.Query().Get("uid"); uid != p.document.UID {
			return fmt.Errorf("the group has the UID %q here", p.document.UID)
		}
		p.left = true
		return nil
	})
	answer(w, err)
}

func (a *Agent) putStanding(w http.ResponseWriter, r *http.Request) {
	var told struct{ Standing bool }
	err := read(r, &told)
	if err == nil {
		err = a.alter(r.PathValue("group"), func(p *part) error {
			p.withheld = !told.Standing
			return nil
		})
	}
	answer(w, err)
}

// stream says how all groups stand, and then what changes. Whoever reads slowly
// hears how it stands then, and not all that was.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	said := map[string]uint64{}
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
	for group, p := range a.groups {
		before, known := said[group]
		switch {
		case before == p.change || p.left && !known:
			continue
		case p.left:
			text = event(text, control.EventLeft, control.Left{Group: group, UID: p.document.UID})
			delete(said, group)
		default:
			text = event(text, control.EventGroup, a.report(p))
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
