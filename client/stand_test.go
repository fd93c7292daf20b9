package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/testnet"
)

// soon is how long a test waits for what must happen, in virtual time.
const soon = 20 * time.Second

// Leases, in milliseconds: minute doesn't end during a test.
const (
	minute = 60_000
	lease  = 500
)

// stand is an agent that is driven by hand.
type stand struct {
	t      *testing.T
	host   testnet.Host
	server *httptest.Server

	mu     sync.Mutex
	leader func() (code int, body string)
	asked  int
	// connections counts those that were opened.
	connections int

	// sessions and watches are streams as they are opened, stops the terms in
	// which the application says that it has stopped.
	sessions, watches chan *line
	stops             chan uint64
}

// line is a stream that the application holds open.
type line struct {
	after  string
	text   chan string
	hangUp chan struct{}
	// silent has the agent no longer say that it lives.
	silent chan struct{}
	// gone is closed when the other side is.
	gone chan struct{}
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{
		t: t, sessions: make(chan *line, 1), watches: make(chan *line, 1), stops: make(chan uint64, 10),
		leader: func() (int, string) { return http.StatusServiceUnavailable, `{"group":"ledger","self":"a"}` },
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start begins a life of the agent.
func (s *stand) start() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/groups/ledger/leader", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.asked++
		leader := s.leader
		s.mu.Unlock()
		code, body := leader()
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	mux.HandleFunc("GET /v1/groups/ledger/session", func(w http.ResponseWriter, r *http.Request) { serve(w, r, s.sessions) })
	mux.HandleFunc("GET /v1/groups/ledger/watch", func(w http.ResponseWriter, r *http.Request) { serve(w, r, s.watches) })
	mux.HandleFunc("POST /v1/groups/ledger/session/s1/stopped", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Term uint64 }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Error(err)
		}
		s.stops <- body.Term
		w.WriteHeader(http.StatusNoContent)
	})
	s.server = &httptest.Server{Listener: s.host.Listen(), Config: &http.Server{Handler: mux, ReadHeaderTimeout: soon}}
	s.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.connections++
			s.mu.Unlock()
		}
	}
	s.server.Start()
}

// reached has a client dial this agent and no other.
func (s *stand) reached(a *agent) {
	if transport, ok := a.http.Transport.(*http.Transport); ok {
		transport.DialContext = s.host.DialContext
	}
}

// kill ends a life of the agent, as the kernel would see it.
func (s *stand) kill() {
	s.server.Listener.Close()
	s.server.CloseClientConnections()
	s.server.Close()
}

func serve(w http.ResponseWriter, r *http.Request, lines chan<- *line) {
	l := &line{
		after: r.Header.Get("Last-Event-ID"), text: make(chan string),
		hangUp: make(chan struct{}), silent: make(chan struct{}), gone: make(chan struct{}),
	}
	defer close(l.gone)
	controller := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if controller.Flush() != nil {
		return
	}
	select {
	case lines <- l:
	case <-r.Context().Done():
		return
	}
	alive := time.NewTicker(time.Second)
	defer alive.Stop()
	for {
		var text string
		select {
		case text = <-l.text:
		case <-alive.C:
			text = ":\n\n"
		case <-l.silent:
			alive.Stop()
			continue
		case <-l.hangUp:
			return
		case <-r.Context().Done():
			return
		}
		if _, err := io.WriteString(w, text); err != nil || controller.Flush() != nil {
			return
		}
	}
}

// says sets what the agent answers to those who ask who leads.
func (s *stand) says(leader func() (int, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = leader
}

// leads has it say that this process does.
func (s *stand) leads(term uint64, remaining int) {
	s.says(func() (int, string) {
		body := fmt.Sprintf(`{"group":"ledger","self":"a","coordinator":"a","leading":true,"priority":10,"term":%d,"token":%d`, term, token(term))
		if remaining > 0 {
			body += fmt.Sprintf(`,"remainingMillis":%d`, remaining)
		}
		return http.StatusOK, body + "}\n"
	})
}

// follows has it say that another process does, or nobody.
func (s *stand) follows(coordinator string, term uint64) {
	s.says(func() (int, string) {
		return http.StatusServiceUnavailable, fmt.Sprintf(`{"group":"ledger","self":"a","coordinator":%q,"term":%d}`, coordinator, term)
	})
}

func (s *stand) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func token(term uint64) uint64 { return term<<20 | 10 }

// opened waits for a session and gives it a name.
func (s *stand) opened(drain time.Duration) *line {
	s.t.Helper()
	l := <-s.sessions
	l.tell(s.t, fmt.Sprintf("event: session\ndata: {\"session\":\"s1\",\"drainMillis\":%d}\n\n", drain.Milliseconds()))
	return l
}

func (l *line) tell(t *testing.T, text string) {
	t.Helper()
	select {
	case l.text <- text:
	case <-l.gone:
		t.Fatalf("nobody listens to %q", text)
	case <-time.After(soon):
		t.Fatalf("nobody hears %q", text)
	}
}

func (l *line) lead(t *testing.T, term uint64) {
	t.Helper()
	l.tell(t, fmt.Sprintf("event: lead\ndata: {\"term\":%d,\"token\":%d}\n\n", term, token(term)))
}

func (l *line) stop(t *testing.T, term uint64) {
	t.Helper()
	l.tell(t, fmt.Sprintf("event: stop\ndata: {\"term\":%d,\"successor\":\"e\"}\n\n", term))
}

func (l *line) lost(t *testing.T, term uint64) {
	t.Helper()
	l.tell(t, fmt.Sprintf("event: lost\ndata: {\"term\":%d}\n\n", term))
}

// open reports whether the other side is still there.
func (l *line) open() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// run is a Run in progress, with a function that does what it is told.
type run struct {
	t      *testing.T
	cancel context.CancelFunc
	// calls are those of the function; ended is what Run returned.
	calls chan *call
	ended chan error
	logs  *logs
	// over is closed when Run has returned.
	over chan struct{}
}

// call is one call of the function. It returns what it gets from result, and
// doesn't heed its context.
type call struct {
	ctx    context.Context
	token  uint64
	result chan error
}

// leading is an application that was told to lead in term 7, for a lease, and does.
func leading(t *testing.T) (*stand, *run, *line, *call) {
	t.Helper()
	s := newStand(t)
	r := newRun(s)
	session := s.opened(soon)
	s.leads(7, lease)
	session.lead(t, 7)
	return s, r, session, r.called(7)
}

func newRun(s *stand) *run {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r := &run{t: s.t, cancel: cancel, calls: make(chan *call, 10), ended: make(chan error, 1), logs: &logs{}, over: make(chan struct{})}
	lead := func(ctx context.Context, token uint64) error {
		c := &call{ctx: ctx, token: token, result: make(chan error, 1)}
		r.calls <- c
		return <-c.result
	}
	go func() {
		defer close(r.over)
		r.ended <- Run(ctx, "ledger", lead, s.reached, LogTo(slog.New(slog.NewTextHandler(r.logs, nil))))
	}()
	s.t.Cleanup(func() {
		cancel()
		<-r.over
	})
	return r
}

// called waits until the function is called, with the token of the term.
func (r *run) called(term uint64) *call {
	r.t.Helper()
	c := await(r.t, r.calls)
	if c.token != token(term) {
		r.t.Fatalf("called with token %d, want %d", c.token, token(term))
	}
	return c
}

// cause waits until the function's context has ended.
func (c *call) cause(t *testing.T) error {
	t.Helper()
	await(t, c.ctx.Done())
	return context.Cause(c.ctx)
}

func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case item := <-from:
		return item
	case <-time.After(soon):
		t.Fatal("it hasn't happened in time")
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true in time: %s", what)
		}
	}
}

type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logs) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}
