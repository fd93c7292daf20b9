package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"sync"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Actions are what the page can do with the permissions of the user, besides showing the
// status of the groups. A nil *Actions permits nothing.
//
// Each user of the machine can send requests to the server. Therefore a request needs the
// key, which is in the address that only the user who started the server has seen.
type Actions struct {
	// Key is the secret that requests need.
	Key string
	// MayReachAgents reports whether the user may connect to the agents of a group, which each action does.
	MayReachAgents func(ctx context.Context, g *v1.ElectionGroup) (bool, error)
	// StepDown makes the coordinator hand over to a member, or to the best one if to is
	// empty. It returns a description of the result.
	StepDown func(ctx context.Context, g *v1.ElectionGroup, to string) (string, error)
	// LastElection reads the journals of the agents. It takes a limited time.
	LastElection func(ctx context.Context, g *v1.ElectionGroup) (*transcript.Election, error)
	// Connections asks the agents what they carry. It takes a limited time.
	Connections func(ctx context.Context, g *v1.ElectionGroup) []describe.Connections

	// busy is locked while a coordinator steps down, and reading while journals are read.
	busy, reading sync.Mutex
}

// NewKey returns a random key.
func NewKey() string { return rand.Text() }

const (
	keyHeader = "X-Conclave-Key"
	// requestMax is the maximum size of a request for an action.
	requestMax = 4 << 10
)

// permission is whether the page can offer the actions on a group.
type permission struct {
	Permitted bool `json:"permitted"`
}

// request asks the coordinator of a group to step down.
type request struct {
	// Coordinator is the one that the user has seen. If another one leads now, nothing is done.
	Coordinator string `json:"coordinator"`
	To          string `json:"to"`
}

// result is the outcome of an action.
type result struct {
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (a *Actions) register(mux *http.ServeMux, store *Store) {
	mux.HandleFunc("GET /actions/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		g := store.find(pathKey(r))
		respond(w, http.StatusOK, permission{Permitted: g != nil && a.accepts(r) && a.may(r.Context(), g)})
	})
	mux.HandleFunc("POST /actions/{namespace}/{name}/step-down", func(w http.ResponseWriter, r *http.Request) {
		a.stepDown(w, r, store.find(pathKey(r)))
	})
	mux.HandleFunc("GET /actions/{namespace}/{name}/last-election", func(w http.ResponseWriter, r *http.Request) {
		a.lastElection(w, r, store.find(pathKey(r)))
	})
	mux.HandleFunc("GET /actions/{namespace}/{name}/connections", func(w http.ResponseWriter, r *http.Request) {
		switch g := store.find(pathKey(r)); {
		case !a.accepts(r):
			respondWithoutKey(w)
		case g == nil:
			respond(w, http.StatusNotFound, result{Error: "there is no such group"})
		default:
			respond(w, http.StatusOK, map[string]any{"rows": a.Connections(r.Context(), g)})
		}
	})
}

// accepts reports whether a request has the key.
func (a *Actions) accepts(r *http.Request) bool {
	return a != nil && subtle.ConstantTimeCompare([]byte(r.Header.Get(keyHeader)), []byte(a.Key)) == 1
}

// may reports whether the user may reach the agents. If that is unknown, the page offers no action.
func (a *Actions) may(ctx context.Context, g *v1.ElectionGroup) bool {
	granted, err := a.MayReachAgents(ctx, g)
	return granted && err == nil
}

// respondWithoutKey refuses a request that has no key.
func respondWithoutKey(w http.ResponseWriter) {
	respond(w, http.StatusForbidden, result{Error: "open the address that kubectl conclave dashboard has printed"})
}

func (a *Actions) stepDown(w http.ResponseWriter, r *http.Request, g *v1.ElectionGroup) {
	if !a.accepts(r) {
		respondWithoutKey(w)
		return
	}
	var asked request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestMax)).Decode(&asked); err != nil {
		respond(w, http.StatusBadRequest, result{Error: "cannot parse the request: " + err.Error()})
		return
	}
	switch {
	case g == nil:
		respond(w, http.StatusNotFound, result{Error: "there is no such group"})
		return
	case g.Status.Coordinator == nil || g.Status.Coordinator.Pod != asked.Coordinator:
		respond(w, http.StatusConflict, result{Error: "the coordinator has changed since; nothing was done"})
		return
	case !a.busy.TryLock():
		respond(w, http.StatusConflict, result{Error: "another coordinator is handing over; nothing was done"})
		return
	}
	defer a.busy.Unlock()
	message, err := a.StepDown(r.Context(), g, asked.To)
	if err != nil {
		respond(w, http.StatusBadGateway, result{Error: err.Error()})
		return
	}
	respond(w, http.StatusOK, result{Message: message})
}

// respond writes JSON.
func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // The client is gone.
}
