package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestWatchStreamsChangesInOrder(t *testing.T) {
	s := newFakeGroup()
	lines, _ := openTestStream(t, "http://"+startAPI(t, s)+"/v1/groups/ledger/watch")
	remaining := int64(400)
	s.changes <- group.Leader{
		Group: "ledger", Self: "a", Coordinator: "a", Leading: true, Token: 9, RemainingMillis: &remaining,
	}
	// The remaining time is omitted: the event may have waited.
	equal(t,
		`data: {"group":"ledger","self":"a","coordinator":"a","leading":true,"priority":0,"term":0,"token":9}`+
			"\n", readEvent(t, lines))
	equal(t, 400, remaining)
	s.changes <- group.Leader{}
	equal(t,
		`data: {"group":"","self":"","coordinator":"","leading":false,"priority":0,"term":0,"token":0}`+"\n",
		readEvent(t, lines))
	s.changes <- group.Leader{HandsOver: true} // It isn't told.
	close(s.changes)
	equal(t, ": the agent has left the group\n", readEvent(t, lines))
	equal(t, "(end)", readEvent(t, lines))
}

func TestSessionStreamsEvents(t *testing.T) {
	s := newFakeGroup()
	lines, hangUp := openTestStream(t, "http://"+startAPI(t, s)+"/v1/groups/ledger/session")
	equal(t, "event: session\ndata: {\"session\":\"s1\",\"drainMillis\":5000,\"leaseMillis\":500}\n", readEvent(t, lines))
	s.sessionEvents <- group.SessionEvent{Kind: group.SettingsChanged}
	equal(t, "event: session\ndata: {\"session\":\"s1\",\"drainMillis\":5000,\"leaseMillis\":500}\n", readEvent(t, lines))
	s.sessionEvents <- group.SessionEvent{Kind: group.Lead, Term: 7, Token: 7340042}
	equal(t, "event: lead\ndata: {\"term\":7,\"token\":7340042}\n", readEvent(t, lines))
	s.sessionEvents <- group.SessionEvent{Kind: group.Stop, Term: 7, Successor: "e"}
	equal(t, "event: stop\ndata: {\"term\":7,\"successor\":\"e\"}\n", readEvent(t, lines))
	s.sessionEvents <- group.SessionEvent{Kind: group.Lost, Term: 7}
	equal(t, "event: lost\ndata: {\"term\":7}\n", readEvent(t, lines))
	hangUp()
	<-s.closed
}

func TestSessionSaysWhetherItRenews(t *testing.T) {
	s := newFakeGroup()
	at := "http://" + startAPI(t, s) + "/v1/groups/ledger/session"
	for query, want := range map[string]bool{"": false, "?renews=false": false, "?renews=true": true} {
		lines, hangUp := openTestStream(t, at+query)
		readEvent(t, lines)
		s.mu.Lock()
		equal(t, want, s.renews)
		s.mu.Unlock()
		hangUp()
		<-s.closed
	}
	status, body := request(t, http.MethodGet, at+"?renews=1", "")
	equal(t, http.StatusBadRequest, status)
	equal(t, "{\"error\":\"renews must be true or false, got \\\"1\\\"\"}\n", body)
}

func TestSessionEndsWithItsGroup(t *testing.T) {
	s := newFakeGroup()
	lines, _ := openTestStream(t, "http://"+startAPI(t, s)+"/v1/groups/ledger/session")
	readEvent(t, lines)
	close(s.sessionEvents)
	equal(t, ": the agent has left the group\n", readEvent(t, lines))
	equal(t, "(end)", readEvent(t, lines))
	<-s.closed
}

func TestSessionEndsWithItsConnection(t *testing.T) {
	s := newFakeGroup()
	at := startAPI(t, s)
	for name, end := range map[string]func(*net.TCPConn){
		"reset":  func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"closed": func(c *net.TCPConn) { c.Close() },
		"half":   func(c *net.TCPConn) { _ = c.CloseWrite() },
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		must.Succeed(t, err)
		_, err = io.WriteString(conn, "GET /v1/groups/ledger/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must.Succeed(t, err)
		lines := bufio.NewReader(conn)
		for line := ""; !strings.HasPrefix(line, "data:"); {
			line, err = lines.ReadString('\n')
			must.Succeed(t, err)
		}
		tcp, ok := conn.(*net.TCPConn)
		equal(t, true, ok)
		end(tcp)
		select {
		case <-s.closed:
		case <-time.After(testTimeout):
			t.Fatalf("%s: the session is still open", name)
		}
		conn.Close()
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	s := newFakeGroup()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, New(s, nil)) }()
	at := "http://" + listener.Addr().String()
	session, _ := openTestStream(t, at+"/v1/groups/ledger/session")
	watch, _ := openTestStream(t, at+"/v1/groups/ledger/watch")
	readEvent(t, session)
	cancel()
	equal(t, "(end)", readEvent(t, session))
	equal(t, "(end)", readEvent(t, watch))
	<-s.closed
	must.Succeed(t, <-ended)
}

// pipeListener accepts connections on which goroutines may wait in a synctest bubble.
type pipeListener struct {
	calls  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	l.calls <- there
	return here, nil
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.calls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestLongRequestsOutliveDeadlines: the server limits other requests to 10 seconds.
func TestLongRequestsOutliveDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeGroup()
		s.stepDown = func(ctx context.Context, _ string) (group.Leader, error) {
			select {
			case <-time.After(57 * time.Second):
				return group.Leader{}, nil
			case <-ctx.Done():
				return group.Leader{}, ctx.Err()
			}
		}
		pipes := pipeListener{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, pipes, New(s, nil)) }()
		transport := &http.Transport{DialContext: pipes.dial}
		client := &http.Client{Transport: transport}

		response, err := client.Get("http://localhost/v1/groups/ledger/session")
		must.Succeed(t, err)
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		readEvent(t, lines)
		events := make(chan string)
		go func() {
			for range 12 {
				events <- readEvent(t, lines)
			}
		}()

		go func() {
			response, err := client.Post("http://localhost/v1/groups/ledger/step-down", "", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				close(events)
				return
			}
			response.Body.Close()
			equal(t, http.StatusOK, response.StatusCode)
			s.sessionEvents <- group.SessionEvent{Kind: group.Lost, Term: 7}
		}()
		// There is a comment every five seconds.
		began := time.Now()
		for range 11 {
			equal(t, ":\n", <-events)
		}
		equal(t, 55*time.Second, time.Since(began))
		equal(t, "event: lost\ndata: {\"term\":7}\n", <-events)
		transport.CloseIdleConnections()
		cancel()
		must.Succeed(t, <-ended)
		<-s.closed
	})
}

func TestIdleStreamSendsComments(t *testing.T) {
	recorder := httptest.NewRecorder()
	s := &stream{w: recorder, controller: http.NewResponseController(recorder), interval: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	pump(ctx, s, func(waiting context.Context) (int, error) {
		if asked++; asked == 3 {
			cancel()
		}
		<-waiting.Done()
		return 0, waiting.Err()
	}, func(int) error { return nil })
	equal(t, ":\n\n:\n\n", recorder.Body.String())
}

// blockedWriter is a response to a client that never reads.
type blockedWriter struct {
	http.ResponseWriter

	deadline time.Time
}

func (d *blockedWriter) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

func (d *blockedWriter) Write([]byte) (int, error) {
	if d.deadline.IsZero() {
		return 0, errors.New("write without a deadline")
	}
	return 0, errWriteDeadline
}

var errWriteDeadline = errors.New("deadline exceeded")

func TestBlockedClientIsDisconnected(t *testing.T) {
	d := &blockedWriter{ResponseWriter: httptest.NewRecorder()}
	s := &stream{w: d, controller: http.NewResponseController(d), interval: time.Millisecond}
	if err := s.begin(); !errors.Is(err, errWriteDeadline) {
		t.Fatal(err)
	}
	d.deadline = time.Time{}
	if err := s.comment(""); !errors.Is(err, errWriteDeadline) {
		t.Fatal(err)
	}
	pump(t.Context(), s, func(context.Context) (int, error) { return 0, nil },
		func(int) error { return s.event("", 0) })
}

func TestThousandWatchersLeaveNoGoroutine(t *testing.T) {
	s := newFakeGroup()
	at := "http://" + startAPI(t, s)
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	before := runtime.NumGoroutine()
	for range 10 {
		var watching sync.WaitGroup
		for range 100 {
			watching.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/v1/groups/ledger/watch", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			})
		}
		watching.Wait()
	}
	transport.CloseIdleConnections()
	// the server's own come and go
	testwait.Until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() < before+10 })
	s.mu.Lock()
	defer s.mu.Unlock()
	equal(t, 1000, s.watchers)
}

func TestStreamsAreLimited(t *testing.T) {
	a := &api{groups: newFakeGroup(), watchers: newSlots(1, 1), sessions: newSlots(1, 1)}
	open := func() int {
		a.watchers.mu.Lock()
		defer a.watchers.mu.Unlock()
		return a.watchers.all
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	go func() {
		defer close(first)
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		a.watch(newFakeGroup(), httptest.NewRecorder(), request)
	}()
	testwait.Until(t, "the first stream is open", func() bool { return open() == 1 })
	recorder := httptest.NewRecorder()
	a.watch(newFakeGroup(), recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	equal(t, http.StatusServiceUnavailable, recorder.Code)
	equal(t,
		`{"error":"too many open streams: at most 1 are allowed","reason":"TooManyStreams"}`+"\n", recorder.Body.String())
	cancel()
	<-first
	equal(t, 0, open())
}

// TestGroupsShareStreams: a group that leaks its streams leaves the others theirs.
func TestGroupsShareStreams(t *testing.T) {
	const groups = 100
	s := newSlots(sessionsMax, streamsPerGroup)
	acquire := func(group string, groups int) (count int, release func()) {
		for {
			one, err := s.acquire(group, groups)
			if err != nil {
				return count, release
			}
			count, release = count+1, one
		}
	}
	for n := range groups {
		if count, _ := acquire(fmt.Sprint("group", n), groups); count != sessionsMax/groups {
			t.Fatalf("group %d: got %d sessions, want %d", n, count, sessionsMax/groups)
		}
	}
	s = newSlots(sessionsMax, streamsPerGroup)
	count, release := acquire("ledger", 1)
	equal(t, streamsPerGroup, count)
	release()
	release() // A second call has no effect.
	count, _ = acquire("ledger", 1)
	equal(t, 1, count)
}
