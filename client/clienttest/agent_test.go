package clienttest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/client/clienttest"
)

const limit = 10 * time.Second

var quiet = client.LogTo(slog.New(slog.NewTextHandler(io.Discard, nil)))

// program is an application that uses the client.
type program struct {
	t *testing.T
	// tokens receives the token of each tenure, causes why it has ended, and result the result of Run.
	tokens chan uint64
	causes chan error
	result chan error
	// finish makes the function return nil of its own accord.
	finish chan struct{}
}

func start(t *testing.T, agent *clienttest.Agent) *program {
	t.Helper()
	p := &program{t: t, tokens: make(chan uint64, 9), causes: make(chan error, 9), result: make(chan error,
		1), finish: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p.result <- client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
			p.tokens <- token
			select {
			case <-ctx.Done():
				p.causes <- context.Cause(ctx)
			case <-p.finish:
			}
			return nil
		}, client.At(agent.URL), quiet)
	}()
	t.Cleanup(func() {
		cancel()
		_ = receive(t, "the result of Run", p.result) // The tests check it where it matters.
	})
	return p
}

func receive[T any](t *testing.T, what string, from <-chan T) (received T) {
	t.Helper()
	select {
	case received = <-from:
	case <-time.After(limit):
		t.Fatalf("waited %s for %s", limit, what)
	}
	return received
}

func (p *program) wantTenure(token uint64) {
	p.t.Helper()
	if got := receive(p.t, "a call of the function", p.tokens); got != token {
		p.t.Errorf("the function got token %d, want %d", got, token)
	}
}

func (p *program) wantEnd(cause error) {
	p.t.Helper()
	if got := receive(p.t, "the end of the context", p.causes); !errors.Is(got, cause) {
		p.t.Errorf("the context ended with %q, want %q", got, cause)
	}
}

// A program leads when its test says so, each time with a higher token, and learns why it stops.
func TestProgramLeadsOnRequest(t *testing.T) {
	agent := clienttest.Start(t, "ledger")
	p := start(t, agent)
	var last uint64
	for _, end := range []struct {
		act   func()
		cause error
	}{{agent.HandOver, client.ErrStop}, {agent.Lose, client.ErrLost}, {agent.Disconnect, client.ErrAgentGone}, {
		agent.HandOver, client.ErrStop,
	}} {
		token := agent.Lead()
		if token <= last {
			t.Errorf("got token %d after %d, want a higher one", token, last)
		}
		last = token
		p.wantTenure(token)
		end.act()
		p.wantEnd(end.cause)
	}
	if got := len(p.tokens); got > 0 {
		t.Errorf("the function was called %d times without Lead", got)
	}
}

// HandOver returns after the function, and until then nobody else is coordinator.
func TestHandOverWaitsForFunction(t *testing.T) {
	agent := clienttest.Start(t, "ledger")
	stopping, returns := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- client.Run(ctx, "ledger", func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			close(stopping)
			<-returns
			return nil
		}, client.At(agent.URL), quiet)
	}()
	agent.Lead()
	handedOver := make(chan struct{})
	go func() {
		agent.HandOver()
		close(handedOver)
	}()
	receive(t, "the end of the context", stopping)
	select {
	case <-handedOver:
		t.Error("HandOver returned before the function")
	default:
	}
	if state := leader(t, agent); state.Coordinator != clienttest.Self || state.Leading {
		t.Errorf("during a hand-over, got %+v, want %s, which may not act", state, clienttest.Self)
	}
	close(returns)
	receive(t, "the end of HandOver", handedOver)
	if state := leader(t, agent); state.Coordinator != clienttest.Other {
		t.Errorf("after a hand-over, got %+v, want %s", state, clienttest.Other)
	}
	cancel()
	if err := receive(t, "the result of Run", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want %v", err, context.Canceled)
	}
}

// A program that gives the office up can be elected again, in a new call of Run.
func TestProgramThatReturnsIsReplaced(t *testing.T) {
	agent := clienttest.Start(t, "ledger")
	for range 3 {
		p := start(t, agent)
		p.wantTenure(agent.Lead())
		p.finish <- struct{}{}
		if err := receive(t, "the result of Run", p.result); err != nil {
			t.Errorf("Run returned %v, want the function's nil", err)
		}
		p.result <- nil // for the clean-up
	}
}

func TestObserversSeeChanges(t *testing.T) {
	agent := clienttest.Start(t, "ledger")
	start(t, agent)
	if state := leader(t, agent); state.Coordinator != clienttest.Other || state.Leading || !state.Until.IsZero() {
		t.Errorf("at first, got %+v, want %s", state, clienttest.Other)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var seen []string
	for state, err := range client.Watch(ctx, "ledger", client.At(agent.URL)) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, state.Coordinator)
		if len(seen) > 1 {
			break
		}
		agent.Lead()
	}
	if len(seen) != 2 || seen[0] != clienttest.Other || seen[1] != clienttest.Self {
		t.Errorf("Watch yielded %v, want %s and %s", seen, clienttest.Other, clienttest.Self)
	}
	state := leader(t, agent)
	if !state.Leading || state.Until.IsZero() {
		t.Errorf("got %+v, want a coordinator with a promise", state)
	}
}

func TestUnknownGroupIsRefused(t *testing.T) {
	agent := clienttest.Start(t, "ledger")
	_, err := client.Leader(context.Background(), "orders", client.At(agent.URL))
	if err == nil {
		t.Fatal("the agent has a group that wasn't started")
	}
	if want := `cannot query the coordinator of group orders: the agent responded with status 404: this agent has no ` +
		`group "orders", only "ledger"`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func leader(t *testing.T, agent *clienttest.Agent) client.State {
	t.Helper()
	state, err := client.LeaderWithPromise(context.Background(), "ledger", time.Second, client.At(agent.URL))
	if err != nil {
		t.Fatal(err)
	}
	return state
}
