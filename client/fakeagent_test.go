//go:build go1.25

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// drainTimeout is that of most sessions, in virtual time.
const drainTimeout = 20 * time.Second

// Leases, in milliseconds: minute doesn't end during a test.
const (
	minute = 60_000
	lease  = 500
)

// fakeAgent is an agent whose responses and events the test determines.
type fakeAgent struct {
	t      *testing.T
	host   testHost
	server *httptest.Server
	// connections are those of all clients with this agent, and clock is their clock.
	connections *connections
	clock       leaseClock

	mu      sync.Mutex
	respond func() (status int, body string)
	queries int
	// batches are the numbers of sessions in the requests for renewals. gone are the sessions that the agent doesn't know,
	// and stuck those of groups that respond too late for requests with other sessions. busy is how many of the next
	// requests get the status 429.
	batches     []int
	gone, stuck map[string]bool
	busy        int
	accepted    int
	opened      int

	// sessions and watches receive the streams that the client opens, stops the terms
	// in which the client confirms that the application has stopped.
	sessions, watches chan *stream
	stops             chan uint64
	// stalls is how many of the next requests for a session get only the header of an error.
	stalls int
}

// stream is a stream that the client has opened.
type stream struct {
	text   chan string
	hangUp chan struct{}
	// silence ends the comments by which the agent shows that it is alive.
	silence chan struct{}
	// clientGone is closed when the client has closed the stream.
	clientGone chan struct{}
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	f := &fakeAgent{
		t: t, sessions: make(chan *stream, 1), watches: make(chan *stream, 1), stops: make(chan uint64, 10),
		respond: func() (int, string) { return http.StatusServiceUnavailable, `{"group":"ledger","self":"a"}` },
	}
	f.connections, f.clock = newConnections(f.host.DialContext), monotonicClock()
	f.start()
	t.Cleanup(f.stop)
	return f
}

// start starts the agent, also after stop.
func (f *fakeAgent) start() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/groups/ledger/leader", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		f.queries++
		respond := f.respond
		f.mu.Unlock()
		status, body := respond()
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	mux.HandleFunc("POST /v1/renewals", f.serveRenewals)
	mux.HandleFunc("GET /v1/groups/ledger/session", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("renews"); got != "true" {
			f.t.Errorf("got renews=%s, want true", got)
		}
		f.mu.Lock()
		stalls := f.stalls > 0
		f.stalls--
		f.mu.Unlock()
		if !stalls {
			serveStream(w, r, f.sessions)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush() // The client has disconnected.
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /v1/groups/ledger/watch",
		func(w http.ResponseWriter, r *http.Request) { serveStream(w, r, f.watches) })
	mux.HandleFunc("POST /v1/groups/ledger/session/{session}/stopped", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Term uint64 }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			f.t.Error(err)
		}
		f.stops <- body.Term
		w.WriteHeader(http.StatusNoContent)
	})
	f.server = &httptest.Server{
		Listener: f.host.Listen(), Config: &http.Server{Handler: mux, ReadHeaderTimeout: waitLimit},
	}
	f.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			f.mu.Lock()
			f.accepted++
			f.mu.Unlock()
		}
	}
	f.server.Start()
}

// dialOption is an Option that connects a client to this agent, on the virtual time of package synctest.
func (f *fakeAgent) dialOption(a *agent) {
	a.clock, a.connections = f.clock, f.connections
}

// stop closes all connections, as the kernel does when an agent is killed.
func (f *fakeAgent) stop() {
	f.server.Listener.Close()
	f.server.CloseClientConnections()
	f.server.Close()
}

func serveStream(w http.ResponseWriter, r *http.Request, streams chan<- *stream) {
	s := &stream{
		text:   make(chan string),
		hangUp: make(chan struct{}), silence: make(chan struct{}), clientGone: make(chan struct{}),
	}
	defer close(s.clientGone)
	controller := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if controller.Flush() != nil {
		return
	}
	select {
	case streams <- s:
	case <-r.Context().Done():
		return
	}
	alive := time.NewTicker(time.Second)
	defer alive.Stop()
	for {
		var text string
		select {
		case text = <-s.text:
		case <-alive.C:
			text = ":\n\n"
		case <-s.silence:
			alive.Stop()
			continue
		case <-s.hangUp:
			return
		case <-r.Context().Done():
			return
		}
		if _, err := io.WriteString(w, text); err != nil || controller.Flush() != nil {
			return
		}
	}
}

// setResponse sets the response to queries for the coordinator.
func (f *fakeAgent) setResponse(respond func() (int, string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.respond = respond
}

// setLeading makes this process the coordinator. Without remaining milliseconds, there is no lease.
func (f *fakeAgent) setLeading(term uint64, remaining int) {
	f.setResponse(func() (int, string) {
		body := fmt.Sprintf(
			`{"group":"ledger","self":"a","coordinator":"a","leading":true,"priority":10,"term":%d,"token":%d`,
			term, token(term))
		if remaining > 0 {
			body += fmt.Sprintf(`,"remainingMillis":%d`, remaining)
		}
		return http.StatusOK, body + "}\n"
	})
}

// lead makes this process the coordinator, and asks its session to lead.
func (f *fakeAgent) lead(session *stream, term uint64, remaining int) {
	f.t.Helper()
	f.setLeading(term, remaining)
	session.sendLead(f.t, term)
}

// setFollowing makes another process the coordinator, or none.
func (f *fakeAgent) setFollowing(coordinator string, term uint64) {
	f.setResponse(func() (int, string) {
		return http.StatusServiceUnavailable,
			fmt.Sprintf(`{"group":"ledger","self":"a","coordinator":%q,"term":%d}`, coordinator, term)
	})
}

// queryCount returns how often the client has queried the coordinator.
func (f *fakeAgent) queryCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queries
}

func token(term uint64) uint64 { return term<<7 | 2 }

// acceptSession waits until the client opens a session, and accepts it.
func (f *fakeAgent) acceptSession(drain time.Duration) *stream {
	f.t.Helper()
	s := <-f.sessions
	f.opened++
	s.send(f.t, fmt.Sprintf("event: session\ndata: {\"session\":\"s%d\",\"drainMillis\":%d,\"leaseMillis\":%d}\n\n",
		f.opened, drain.Milliseconds(), lease))
	return s
}

func (s *stream) send(t *testing.T, text string) {
	t.Helper()
	select {
	case s.text <- text:
	case <-s.clientGone:
		t.Fatalf("cannot send %q: the client has closed the stream", text)
	case <-time.After(waitLimit):
		t.Fatalf("cannot send %q: the client doesn't read", text)
	}
}

func (s *stream) sendLead(t *testing.T, term uint64) {
	t.Helper()
	s.send(t, fmt.Sprintf("event: lead\ndata: {\"term\":%d,\"token\":%d}\n\n", term, token(term)))
}

func (s *stream) sendStop(t *testing.T, term uint64) {
	t.Helper()
	s.send(t, fmt.Sprintf("event: stop\ndata: {\"term\":%d,\"successor\":\"e\"}\n\n", term))
}

func (s *stream) sendLost(t *testing.T, term uint64) {
	t.Helper()
	s.send(t, fmt.Sprintf("event: lost\ndata: {\"term\":%d}\n\n", term))
}

// isOpen reports whether the client hasn't closed the stream.
func (s *stream) isOpen() bool {
	select {
	case <-s.clientGone:
		return false
	default:
		return true
	}
}

// clientRun is a call of Run with a function that the test controls.
type clientRun struct {
	t      *testing.T
	cancel context.CancelFunc
	// calls receives the calls of the function, result the result of Run.
	calls  chan *call
	result chan error
	log    testLog
	// stopped is closed when Run has returned.
	stopped chan struct{}
}

// call is a call of the function. It ignores its context, and returns what the test sends to result.
type call struct {
	ctx    context.Context
	token  uint64
	result chan error
}

// startLeading starts a client that is coordinator in term 7: see setLeading.
func startLeading(t *testing.T, remaining int) (*fakeAgent, *clientRun, *stream, *call) {
	t.Helper()
	fake := newFakeAgent(t)
	r := startRun(fake)
	session := fake.acceptSession(drainTimeout)
	fake.lead(session, 7, remaining)
	return fake, r, session, r.awaitCall(7)
}

func startRun(fake *fakeAgent, options ...Option) *clientRun {
	fake.t.Helper()
	ctx, cancel := context.WithCancel(fake.t.Context())
	r := &clientRun{t: fake.t, cancel: cancel, calls: make(chan *call, 10), result: make(chan error, 1), stopped: make(
		chan struct{})}
	lead := func(ctx context.Context, token uint64) error {
		c := &call{ctx: ctx, token: token, result: make(chan error, 1)}
		r.calls <- c
		return <-c.result
	}
	go func() {
		defer close(r.stopped)
		r.result <- Run(ctx, "ledger", lead, append(options, fake.dialOption, LogTo(r.log.Logger()))...)
	}()
	fake.t.Cleanup(func() {
		cancel()
		<-r.stopped
	})
	return r
}

// awaitCall waits until the function is called, with the token of the term.
func (r *clientRun) awaitCall(term uint64) *call {
	r.t.Helper()
	c := receive(r.t, "a call of the function", r.calls)
	if c.token != token(term) {
		r.t.Fatalf("got token %d, want %d", c.token, token(term))
	}
	return c
}

// awaitResult waits until Run returns.
func (r *clientRun) awaitResult() error {
	r.t.Helper()
	return receive(r.t, "the result of Run", r.result)
}

// end interrupts Run, and waits until it returns.
func (r *clientRun) end() {
	r.t.Helper()
	r.cancel()
	wantError(r.t, r.awaitResult(), context.Canceled)
}

// awaitCause waits until the function's context has ended, and returns the cause.
func (c *call) awaitCause(t *testing.T) error {
	t.Helper()
	receive(t, "the end of the function's context", c.ctx.Done())
	return context.Cause(c.ctx)
}

// awaitEnd waits until the client has closed the stream.
func (s *stream) awaitEnd(t *testing.T) {
	t.Helper()
	receive(t, "the end of the stream", s.clientGone)
}

// awaitWatch waits until the client opens a watch.
func (f *fakeAgent) awaitWatch() *stream {
	f.t.Helper()
	return receive(f.t, "a watch", f.watches)
}

// awaitStop waits until the client confirms that it has stopped in a term.
func (f *fakeAgent) awaitStop(term uint64) {
	f.t.Helper()
	if got := receive(f.t, "a stop confirmation", f.stops); got != term {
		f.t.Fatalf("got a stop confirmation for term %d, want %d", got, term)
	}
}
