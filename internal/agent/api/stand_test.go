package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// soon is how long a test waits for what must happen.
const soon = 20 * time.Second

// stand is a group that is driven by hand.
type stand struct {
	mu       sync.Mutex
	leader   group.Leader
	asked    int
	stepDown func(ctx context.Context, to string) (group.Leader, error)
	problems []string

	after    chan string
	changes  chan group.Change
	told     chan group.SessionEvent
	closed   chan struct{}
	sessions int
	watchers int
}

func newStand() *stand {
	return &stand{
		leader: group.Leader{Group: "ledger", Self: "a", Coordinator: "e", Priority: 50, Term: 7},
		after:  make(chan string, 1), changes: make(chan group.Change), told: make(chan group.SessionEvent),
		closed: make(chan struct{}, 1),
	}
}

func (s *stand) Expects(name string) bool { return name == "awaited" }

func (s *stand) Names() []string { return []string{"ledger"} }

func (s *stand) Find(name string) (Group, bool) { return s, name == "ledger" || name == "a/b" }

func (s *stand) Problems() []string { return s.problems }

func (s *stand) LeaderWithPromise(context.Context) (group.Leader, error) { return s.Leader(), nil }

func (s *stand) RenewSession(_ context.Context, session string) (group.Leader, error) {
	if session != "s1" {
		return group.Leader{}, group.ErrNoSession
	}
	return s.Leader(), nil
}

func (s *stand) Leader() group.Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.leader
}

func (s *stand) set(change func(*group.Leader)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.leader)
}

func (s *stand) Status(context.Context) (group.Status, error) {
	status := group.Status{Leader: s.Leader(), Algorithm: "StatusTable", Safety: "Majority", Version: 3}
	// It ends between the snapshot and the answer.
	s.set(func(l *group.Leader) { l.Leading, l.Token, l.RemainingMillis = false, 0, nil })
	return status, nil
}

func (s *stand) DrainTimeout() time.Duration { return 5 * time.Second }

func (s *stand) Watch(after string) Watcher {
	select {
	case s.after <- after:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers++
	return watcher{s}
}

type watcher struct{ *stand }

func (w watcher) Next(ctx context.Context) (group.Change, error) {
	return next(ctx, w.changes, group.ErrWatcherTooSlow)
}

func (s *stand) OpenSession(context.Context) (Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return &session{s}, nil
}

type session struct{ *stand }

func (s *session) ID() string { return "s1" }

func (s *session) Next(ctx context.Context) (group.SessionEvent, error) {
	return next(ctx, s.told, group.ErrClosed)
}

func (s *session) Close() { s.closed <- struct{}{} }

func next[T any](ctx context.Context, from chan T, over error) (T, error) {
	select {
	case item, ok := <-from:
		if !ok {
			return item, over
		}
		return item, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *stand) ConfirmStopped(_ context.Context, id string, term uint64) error {
	if id != "s1" {
		return group.ErrNoSession
	}
	if term != 7 {
		return group.ErrWrongTerm
	}
	return nil
}

func (s *stand) StepDown(ctx context.Context, to string) (group.Leader, error) {
	return s.stepDown(ctx, to)
}

// serve runs the API on a port of loopback and gives its address.
func serve(t *testing.T, groups Groups) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, New(groups, http.NotFoundHandler())) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same[T comparable](t *testing.T, want, got T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// ask sends a request and gives the answer's status and text.
func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	same(t, "no-store", response.Header.Get("Cache-Control"))
	return response.StatusCode, string(text)
}

// follow opens a stream; lines gives what is in it.
func follow(t *testing.T, url string, header ...string) (lines *bufio.Reader, hangUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must(t, err)
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	same(t, http.StatusOK, response.StatusCode)
	same(t, "text/event-stream", response.Header.Get("Content-Type"))
	return bufio.NewReader(response.Body), cancel
}

// block reads up to the next empty line.
func block(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	var text string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return text + "(end)"
		}
		must(t, err)
		if line == "\n" && text != "" {
			return text
		}
		if line != "\n" {
			text += line
		}
	}
}
