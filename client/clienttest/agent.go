// Package clienttest lets the test of a Go program decide when the program is coordinator.
//
//	agent := clienttest.Start(t, "ledger")
//	go client.Run(ctx, "ledger", serve, client.At(agent.URL))
//	token := agent.Lead() // serve has been called with this token
//	agent.HandOver()      // serve's context has ended with client.ErrStop, and serve has returned
//
// The agent of this package elects nobody, and changes the coordinator only if the test asks for it. So it
// shows what the program does, and not whether it is fast enough: its lease is long. To test a program with
// real leases, or one that isn't written in Go, run conclave-agent fake beside it.
package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
)

// The names of the two processes of the group.
const (
	// Self is the process under test.
	Self = "self"
	// Other is the process that leads while Self doesn't.
	Other = "other"
)

const (
	priority = 1
	// patience is how long the test waits for the program.
	patience = 10 * time.Second
	// lease and drain timeout are longer than a test, also while somebody debugs it.
	lease = 10 * time.Minute
	// introduceInterval is the interval at which Lead asks a session to renew.
	introduceInterval = 10 * time.Millisecond
	// aliveInterval is the interval of the comments in a stream. The client considers an agent without them dead.
	aliveInterval = time.Second
)

// Agent is a local agent of a group with two processes. Other leads first.
type Agent struct {
	// URL is the agent's address, for client.At, or for the environment variable CONCLAVE_AGENT.
	URL string

	t      testing.TB
	group  string
	server *httptest.Server

	mu       sync.Mutex
	state    client.State
	sessions []*session
	opened   int
	// stopping is the term in which the program was asked to stop and hasn't yet.
	stopping uint64
	// renewals counts those in this term, and answered is the last term with any.
	renewals int
	answered uint64
	// changed is closed and replaced when any of this changes.
	changed chan struct{}
}

// session is a program that is ready to lead. Only the oldest one does.
type session struct {
	number int
	events []string
	// counts is set once the program has asked for the coordinator in this session.
	counts bool
}

func (s *session) id() string { return strconv.Itoa(s.number) }

// Start starts an agent, which ends with the test.
func Start(t testing.TB, group string) *Agent {
	a := &Agent{t: t, group: group, changed: make(chan struct{})}
	a.state = client.State{Group: group, Self: Self, Coordinator: Other, Priority: priority, Term: 1}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/renewals", a.serveRenewals)
	mux.HandleFunc("GET /v1/groups/{group}/leader", a.only(a.serveLeader))
	mux.HandleFunc("GET /v1/groups/{group}/watch", a.only(a.serveWatch))
	mux.HandleFunc("GET /v1/groups/{group}/session", a.only(a.serveSession))
	mux.HandleFunc("POST /v1/groups/{group}/session/{id}/stopped", a.only(a.serveStopped))
	ctx, endStreams := context.WithCancel(context.Background())
	a.server = httptest.NewUnstartedServer(mux)
	a.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	a.server.Start()
	a.URL = a.server.URL
	t.Cleanup(func() {
		endStreams()
		a.server.Close()
	})
	return a
}

// Lead makes the program coordinator, and returns its fencing token once its function has been called. It waits until
// the program has opened a session, and fails the test if it doesn't.
func (a *Agent) Lead() (token uint64) {
	a.t.Helper()
	for confirmed := false; !confirmed; {
		var term uint64
		a.await("the program has called client.Run and doesn't lead: call HandOver or Lose before Lead", func() bool {
			return len(a.sessions) > 0 && a.sessions[0].counts && !a.state.Leading && a.stopping == 0
		}, func() {
			a.setCoordinator(Self)
			term, token = a.state.Term, a.state.Token
			a.sessions[0].send("lead", map[string]uint64{"term": term, "token": token})
		})
		stopAsking := a.askToRenew(term)
		// A second renewal shows that the program has received the response to the first one. If another term begins
		// before the first, the session was about to end.
		a.await("the program renews its tenure", func() bool { return a.renewals > 1 || a.state.Term != term }, func() {
			confirmed = a.state.Term == term || a.answered == term
		})
		stopAsking()
	}
	return token
}

// askToRenew introduces the session again and again, which makes the client renew at once.
func (a *Agent) askToRenew(term uint64) (stop func()) {
	done := make(chan struct{})
	go func() {
		for tick := time.NewTicker(introduceInterval); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			a.mu.Lock()
			if a.state.Term == term && a.renewals > 0 {
				a.sessions[0].introduce()
				a.notify()
			}
			a.mu.Unlock()
		}
	}()
	return func() { close(done) }
}

// HandOver makes the other process coordinator as in a planned hand-over: the context of the program's function ends
// with client.ErrStop, and HandOver returns when the function has returned.
func (a *Agent) HandOver() {
	a.t.Helper()
	a.await("the program leads: call Lead first", func() bool { return a.state.Leading }, func() {
		a.state.Leading, a.state.Token = false, 0
		a.stopping = a.state.Term
		a.sessions[0].send("stop", map[string]any{"term": a.state.Term, "successor": Other})
	})
	a.await("the function of client.Run returns", func() bool { return a.stopping == 0 }, nil)
}

// Lose makes the other process coordinator at once, as if this one had lost its majority: the context of the program's
// function ends with client.ErrLost.
func (a *Agent) Lose() {
	a.t.Helper()
	a.await("the program leads: call Lead first", func() bool { return a.state.Leading }, func() {
		a.sessions[0].send("lost", map[string]uint64{"term": a.state.Term})
		a.setCoordinator(Other)
	})
}

// Disconnect breaks the program's connections, as if the agent had crashed, and accepts new ones. The other process is
// coordinator then. The context of the program's function ends with client.ErrAgentGone.
func (a *Agent) Disconnect() {
	a.t.Helper()
	a.mu.Lock()
	opened := a.opened
	a.mu.Unlock()
	a.server.CloseClientConnections()
	a.await("the program's sessions end", func() bool {
		return !slices.ContainsFunc(a.sessions, func(s *session) bool { return s.number <= opened })
	}, nil)
}

// await waits until a condition holds, and then calls do. Both run while a.mu is locked.
func (a *Agent) await(what string, condition func() bool, do func()) {
	a.t.Helper()
	limit := time.After(patience)
	for {
		a.mu.Lock()
		holds, changed := condition(), a.changed
		if holds && do != nil {
			do()
			a.notify()
		}
		a.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-changed:
		case <-limit:
			a.t.Fatalf("clienttest: waited %s until %s", patience, what)
		}
	}
}

// notify wakes everyone who waits for a change. a.mu is locked.
func (a *Agent) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// setCoordinator begins a term. a.mu is locked.
func (a *Agent) setCoordinator(name string) {
	a.stopping, a.renewals = 0, 0
	a.state.Term++
	a.state.Coordinator, a.state.Leading, a.state.Token = name, name == Self, 0
	if a.state.Leading {
		a.state.Token = a.state.Term << 7 // and its place in the list, which is the first one
	}
}

// only answers requests for other groups as a real agent does.
func (a *Agent) only(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := a.check(r.PathValue("group")); err != nil {
			respond(w, http.StatusNotFound, map[string]string{"error": err.Error()})
			return
		}
		serve(w, r)
	}
}

func (a *Agent) check(group string) error {
	if group != a.group {
		return fmt.Errorf("this agent has no group %q, only %q", group, a.group)
	}
	return nil
}

// leader is the response to a query for the coordinator.
type leader struct {
	client.State

	RemainingMillis int64 `json:"remainingMillis,omitempty"`
}

func (l *leader) status() int {
	if l.Leading {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a *Agent) serveLeader(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if id := query.Get("session"); id != "" {
		l, err := a.renew(id)
		if err != nil {
			respond(w, http.StatusNotFound, map[string]string{"error": err.Error()})
			return
		}
		respond(w, l.status(), l)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &leader{State: a.state}
	if a.state.Coordinator == Self && query.Has("promiseMillis") {
		l.RemainingMillis = lease.Milliseconds()
	}
	respond(w, l.status(), l)
}

// renewed is the result of the renewal of one session.
type renewed struct {
	Status int     `json:"status"`
	Leader *leader `json:"leader,omitempty"`
	Error  string  `json:"error,omitempty"`
}

func (a *Agent) serveRenewals(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Sessions []struct{ Group, Session string }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		respond(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	results := make([]renewed, len(request.Sessions))
	for i, session := range request.Sessions {
		err := a.check(session.Group)
		if err == nil {
			results[i].Leader, err = a.renew(session.Session)
		}
		if err != nil {
			results[i] = renewed{Status: http.StatusNotFound, Error: err.Error()}
			continue
		}
		results[i].Status = results[i].Leader.status()
	}
	respond(w, http.StatusOK, map[string]any{"results": results})
}

// renew renews the session with an ID.
func (a *Agent) renew(id string) (*leader, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.sessions, func(s *session) bool { return s.id() == id })
	if at < 0 {
		return nil, fmt.Errorf("no session %s", id)
	}
	l := &leader{State: a.state}
	a.sessions[at].counts = true
	if at > 0 { // It isn't its turn.
		l.Leading, l.Token = false, 0
	}
	if l.Leading {
		a.renewals++
		a.answered = a.state.Term
	}
	if a.state.Coordinator == Self {
		l.RemainingMillis = lease.Milliseconds()
	}
	a.notify()
	return l, nil
}

func (a *Agent) serveWatch(w http.ResponseWriter, r *http.Request) {
	sent := uint64(0)
	a.stream(w, r, func() (text string) {
		if sent == a.state.Term {
			return ""
		}
		sent = a.state.Term
		data, _ := json.Marshal(a.state) // It consists of names and numbers.
		return fmt.Sprintf("event: change\nid: 1-%d\ndata: %s\n\n", sent, data)
	})
}

func (a *Agent) serveSession(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.opened++
	s := &session{number: a.opened}
	s.introduce()
	a.sessions = append(a.sessions, s)
	a.notify()
	a.mu.Unlock()
	a.stream(w, r, func() string {
		if len(s.events) == 0 {
			return ""
		}
		next := s.events[0]
		s.events = s.events[1:]
		return next
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sessions[0] == s && a.state.Coordinator == Self {
		a.setCoordinator(Other)
	}
	a.sessions = slices.DeleteFunc(a.sessions, func(other *session) bool { return other == s })
	a.notify()
}

func (a *Agent) serveStopped(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Term uint64 `json:"term"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		respond(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopping == body.Term && len(a.sessions) > 0 && a.sessions[0].id() == r.PathValue("id") {
		a.setCoordinator(Other)
		a.notify()
	}
	w.WriteHeader(http.StatusNoContent)
}

// introduce tells the client the ID of the session. a.mu is locked.
func (s *session) introduce() {
	s.send("session",
		map[string]any{"session": s.id(), "drainMillis": lease.Milliseconds(), "leaseMillis": lease.Milliseconds()})
}

// send appends an event to the session's stream. a.mu is locked.
func (s *session) send(kind string, data any) {
	encoded, _ := json.Marshal(data) // It consists of names and numbers.
	s.events = append(s.events, fmt.Sprintf("event: %s\ndata: %s\n\n", kind, encoded))
}

// stream writes the texts that next returns, until the client has gone. next is called while a.mu is locked.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request, next func() string) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for text := ":\n\n"; ; {
		if text != "" {
			if _, err := w.Write([]byte(text)); err != nil || controller.Flush() != nil {
				return
			}
		}
		a.mu.Lock()
		text = next()
		changed := a.changed
		a.mu.Unlock()
		if text != "" {
			continue
		}
		select {
		case <-changed:
		case <-alive.C:
			text = ":\n\n"
		case <-r.Context().Done():
			return
		}
	}
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // The client notices if the response is incomplete.
}
