package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// testTimeout bounds everything that a test waits for.
const testTimeout = testwait.Limit

// fakeGroup is a Group, and the only one of Groups, that tests control.
type fakeGroup struct {
	mu          sync.Mutex
	leader      group.Leader
	leaderCalls int
	stepDown    func(ctx context.Context, to string) (group.Leader, error)
	problems    []string
	others      []string
	ineligible  group.Ineligibility
	heldBack    time.Time
	stuck       bool
	full        bool
	promises    int

	changes       chan group.Leader
	sessionEvents chan group.SessionEvent
	closed        chan struct{}
	sessions      int
	// renews is that of the last session.
	renews   bool
	watchers int
}

func newFakeGroup() *fakeGroup {
	return &fakeGroup{
		leader:  group.Leader{Group: "ledger", Self: "a", Coordinator: "e", Priority: 50, Term: 7},
		changes: make(chan group.Leader), sessionEvents: make(chan group.SessionEvent),
		closed: make(chan struct{}, 1),
	}
}

func (f *fakeGroup) Expects(name string) bool { return name == "expected" }

func (f *fakeGroup) Names() []string { return []string{"ledger"} }

func (f *fakeGroup) Find(name string) (Group, bool) { return f, name == "ledger" || name == "a/b" }

func (f *fakeGroup) Problems() (own, others []string) { return f.problems, f.others }

func (f *fakeGroup) Ineligible() group.Ineligibility { return f.ineligible }

func (f *fakeGroup) Penalty() (until time.Time, shortTenures int) {
	if !f.heldBack.IsZero() {
		shortTenures = 3
	}
	return f.heldBack, shortTenures
}

// LeaderWithPromise returns the limit of the promise as the remaining time.
func (f *fakeGroup) LeaderWithPromise(_ context.Context, atMost time.Duration) (group.Leader, error) {
	f.mu.Lock()
	f.promises++
	f.mu.Unlock()
	l, millis := f.Leader(), atMost.Milliseconds()
	l.RemainingMillis = &millis
	return l, nil
}

func (f *fakeGroup) RenewSession(ctx context.Context, session string) (group.Leader, error) {
	if session == "stuck" {
		<-ctx.Done()
		return group.Leader{}, ctx.Err()
	}
	if session != "s1" {
		return group.Leader{}, group.ErrNoSession
	}
	return f.Leader(), nil
}

func (f *fakeGroup) AwaitRoundTrip(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeGroup) Leader() group.Leader {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaderCalls++
	return f.leader
}

func (f *fakeGroup) set(change func(*group.Leader)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.leader)
}

func (f *fakeGroup) Status(context.Context) (group.Status, error) {
	status := group.Status{
		Leader: f.Leader(), Algorithm: "StatusTable", Safety: "Majority", Version: 3,
		Processes: []group.Process{{Row: control.Row{Name: "a", Status: "Normal"}}},
		Timing:    &control.TimingInForce{HeartbeatMillis: 100},
	}
	f.fill(reflect.ValueOf(&status).Elem())
	// The tenure ends between Status and the response.
	f.set(func(l *group.Leader) { l.Leading, l.Token, l.RemainingMillis = false, 0, nil })
	return status, nil
}

func (f *fakeGroup) Journal(context.Context) (journal.Journal, error) {
	j := journal.Journal{
		Group: "ledger", Agent: "a", Algorithm: "StatusTable", Safety: "Majority", Members: []journal.Member{{Name: "a"}},
		Steps: []journal.Step{{Input: "gone", Peer: "e"}},
	}
	f.fill(reflect.ValueOf(&j).Elem())
	return j, nil
}

// fill sets all fields of a response that are zero, if f is full.
func (f *fakeGroup) fill(v reflect.Value) {
	switch {
	case f.full && v.CanSet() && v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(field)
		}
	case !f.full, !v.CanSet():
	case v.Kind() == reflect.Slice:
		v.Set(reflect.AppendSlice(v, reflect.MakeSlice(v.Type(), 1-min(1, v.Len()), 1)))
		f.fill(v.Index(0))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.IsZero():
		v.Set(reflect.ValueOf('1').Convert(v.Type()))
	}
}

func (f *fakeGroup) DrainTimeout() time.Duration { return 5 * time.Second }

func (f *fakeGroup) Lease() time.Duration { return 500 * time.Millisecond }

func (f *fakeGroup) Watch() Watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	return watcher{f}
}

type watcher struct{ *fakeGroup }

func (w watcher) Next(ctx context.Context) (group.Leader, error) {
	return next(ctx, w.changes, group.ErrClosed)
}

func (f *fakeGroup) OpenSession(_ context.Context, renews bool) (Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions++
	f.renews = renews
	return &session{f}, nil
}

type session struct{ *fakeGroup }

func (s *session) ID() string { return "s1" }

func (s *session) Next(ctx context.Context) (group.SessionEvent, error) {
	return next(ctx, s.sessionEvents, group.ErrClosed)
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

func (f *fakeGroup) ConfirmStopped(_ context.Context, id string, term uint64) error {
	if id != "s1" {
		return group.ErrNoSession
	}
	if term != 7 {
		return group.ErrWrongTerm
	}
	return nil
}

func (f *fakeGroup) StepDown(ctx context.Context, to string) (group.Leader, error) {
	return f.stepDown(ctx, to)
}

// startAPI serves the API on a loopback port and returns its address.
func startAPI(t *testing.T, groups Groups) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, New(groups, http.NotFoundHandler())) }()
	t.Cleanup(func() {
		cancel()
		must.Succeed(t, <-ended)
	})
	return listener.Addr().String()
}

func equal[T comparable](t *testing.T, want, got T) {
	t.Helper()
	must.Equalf(t, got, want, "answer")
}

// request sends a request and returns the status and the body of the response.
func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	equal(t, "no-store", response.Header.Get("Cache-Control"))
	return response.StatusCode, string(text)
}

// openTestStream opens a stream and returns a reader of its lines.
func openTestStream(t *testing.T, url string, header ...string) (lines *bufio.Reader, hangUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must.Succeed(t, err)
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	t.Cleanup(func() { response.Body.Close() })
	equal(t, http.StatusOK, response.StatusCode)
	equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	return bufio.NewReader(response.Body), cancel
}

// readEvent reads up to the next empty line.
func readEvent(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	var text string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return text + "(end)"
		}
		must.Succeed(t, err)
		if line == "\n" && text != "" {
			return text
		}
		if line != "\n" {
			text += line
		}
	}
}
