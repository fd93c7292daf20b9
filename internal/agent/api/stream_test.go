package api

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/conclave-dev/conclave/internal/testing/poll"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
)

func TestWatchTellsChangesInOrder(t *testing.T) {
	s := newStand()
	lines, _ := follow(t, "http://"+serve(t, s)+"/v1/groups/ledger/watch", "Last-Event-ID", "x-3")
	same(t, "x-3", <-s.after)
	remaining := int64(400)
	s.changes <- group.Change{ID: "x-4", Leader: group.Leader{Group: "ledger", Self: "a", Coordinator: "a", Leading: true, Token: 9, RemainingMillis: &remaining}}
	// How long it lasts isn't told: the line could have waited.
	same(t, `id: x-4`+"\n"+`data: {"group":"ledger","self":"a","coordinator":"a","leading":true,"priority":0,"term":0,"token":9}`+"\n", block(t, lines))
	same(t, 400, remaining)
	s.changes <- group.Change{ID: "x-5"}
	same(t, `id: x-5`+"\n"+`data: {"group":"","self":"","coordinator":"","leading":false,"priority":0,"term":0,"token":0}`+"\n", block(t, lines))
	close(s.changes) // too far behind
	same(t, ": too many changes at once: watch again\n", block(t, lines))
	same(t, "(end)", block(t, lines))
}

func TestSessionTellsWhatToDo(t *testing.T) {
	s := newStand()
	lines, hangUp := follow(t, "http://"+serve(t, s)+"/v1/groups/ledger/session")
	same(t, "event: session\ndata: {\"session\":\"s1\",\"drainMillis\":5000}\n", block(t, lines))
	s.told <- group.SessionEvent{Kind: group.Lead, Term: 7, Token: 7340042}
	same(t, "event: lead\ndata: {\"term\":7,\"token\":7340042}\n", block(t, lines))
	s.told <- group.SessionEvent{Kind: group.Stop, Term: 7, Successor: "e"}
	same(t, "event: stop\ndata: {\"term\":7,\"successor\":\"e\"}\n", block(t, lines))
	s.told <- group.SessionEvent{Kind: group.Lost, Term: 7}
	same(t, "event: lost\ndata: {\"term\":7}\n", block(t, lines))
	hangUp()
	<-s.closed
}

func TestSessionEndsWithItsGroup(t *testing.T) {
	s := newStand()
	lines, _ := follow(t, "http://"+serve(t, s)+"/v1/groups/ledger/session")
	block(t, lines)
	close(s.told)
	same(t, ": the agent has left the group\n", block(t, lines))
	same(t, "(end)", block(t, lines))
	<-s.closed
}

func TestSessionEndsWithItsConnection(t *testing.T) {
	s := newStand()
	at := serve(t, s)
	for name, end := range map[string]func(*net.TCPConn){
		"reset":  func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"closed": func(c *net.TCPConn) { c.Close() },
		"half":   func(c *net.TCPConn) { _ = c.CloseWrite() },
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		must(t, err)
		_, err = io.WriteString(conn, "GET /v1/groups/ledger/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must(t, err)
		lines := bufio.NewReader(conn)
		for line := ""; !strings.HasPrefix(line, "data:"); {
			line, err = lines.ReadString('\n')
			must(t, err)
		}
		tcp, ok := conn.(*net.TCPConn)
		same(t, true, ok)
		end(tcp)
		select {
		case <-s.closed:
		case <-time.After(soon):
			t.Fatalf("%s: the session is still open", name)
		}
		conn.Close()
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	s := newStand()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, New(s, nil)) }()
	at := "http://" + listener.Addr().String()
	session, _ := follow(t, at+"/v1/groups/ledger/session")
	watch, _ := follow(t, at+"/v1/groups/ledger/watch")
	block(t, session)
	cancel()
	same(t, "(end)", block(t, session))
	same(t, "(end)", block(t, watch))
	<-s.closed
	must(t, <-ended)
}

// TestWhatTakesLongOutlivesTheDeadlines: the server gives other requests 10 seconds.
func TestWhatTakesLongOutlivesTheDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.stepDown = func(ctx context.Context, _ string) (group.Leader, error) {
			select {
			case <-time.After(57 * time.Second):
				return group.Leader{}, nil
			case <-ctx.Done():
				return group.Leader{}, ctx.Err()
			}
		}
		var host testnet.Host
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		listener := host.Listen()
		go func() { ended <- Serve(ctx, listener, New(s, nil)) }()
		transport := &http.Transport{DialContext: host.DialContext}
		client := &http.Client{Transport: transport}

		response, err := client.Get("http://localhost/v1/groups/ledger/session")
		must(t, err)
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		block(t, lines)
		heard := make(chan string)
		go func() {
			for range 12 {
				heard <- block(t, lines)
			}
		}()

		go func() {
			response, err := client.Post("http://localhost/v1/groups/ledger/step-down", "", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				close(heard)
				return
			}
			response.Body.Close()
			same(t, http.StatusOK, response.StatusCode)
			s.told <- group.SessionEvent{Kind: group.Lost, Term: 7}
		}()
		// Every five seconds it says that it is alive.
		began := time.Now()
		for range 11 {
			same(t, ":\n", <-heard)
		}
		same(t, 55*time.Second, time.Since(began))
		same(t, "event: lost\ndata: {\"term\":7}\n", <-heard)
		transport.CloseIdleConnections()
		cancel()
		must(t, <-ended)
		<-s.closed
	})
}

func TestSilenceIsBroken(t *testing.T) {
	recorder := httptest.NewRecorder()
	s := &stream{w: recorder, controller: http.NewResponseController(recorder), silence: time.Millisecond}
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
	same(t, ":\n\n:\n\n", recorder.Body.String())
}

// deaf is a connection whose other side never reads.
type deaf struct {
	http.ResponseWriter

	deadline time.Time
}

func (d *deaf) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

func (d *deaf) Write([]byte) (int, error) {
	if d.deadline.IsZero() {
		return 0, errors.New("a write without a deadline waits for ever")
	}
	return 0, errDeaf
}

var errDeaf = errors.New("deadline exceeded")

func TestReaderThatDoesNotReadIsGivenUp(t *testing.T) {
	d := &deaf{ResponseWriter: httptest.NewRecorder()}
	s := &stream{w: d, controller: http.NewResponseController(d), silence: time.Millisecond}
	if err := s.begin(); !errors.Is(err, errDeaf) {
		t.Fatal(err)
	}
	d.deadline = time.Time{}
	if err := s.comment(""); !errors.Is(err, errDeaf) {
		t.Fatal(err)
	}
	pump(t.Context(), s, func(context.Context) (int, error) { return 0, nil }, func(int) error { return s.event("", "", 0) })
}

func TestAThousandWatchersComeAndGo(t *testing.T) {
	s := newStand()
	at := "http://" + serve(t, s)
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	before := runtime.NumGoroutine()
	for range 4 {
		var watching sync.WaitGroup
		for range 250 {
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
	poll.Until(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() < before+10 }) // the server's own come and go
	s.mu.Lock()
	defer s.mu.Unlock()
	same(t, 1000, s.watchers)
}

func TestTooManyStreams(t *testing.T) {
	a := &api{groups: newStand(), watchers: make(seats, 1), sessions: make(seats, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	go func() {
		defer close(first)
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		a.watch(newStand(), httptest.NewRecorder(), request)
	}()
	poll.Until(t, "the first is there", func() bool { return len(a.watchers) == 1 })
	recorder := httptest.NewRecorder()
	a.watch(newStand(), recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	same(t, http.StatusServiceUnavailable, recorder.Code)
	same(t, `{"error":"there are 1 such streams already: close some"}`+"\n", recorder.Body.String())
	cancel()
	<-first
	same(t, 0, len(a.watchers))
}
