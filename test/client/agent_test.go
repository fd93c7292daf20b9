package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// configuration is the configuration file of each agent.
const configuration = `
self: %s
listen: %s
state: %s
tls: {insecure: true}
groups:
- name: ledger
  preemption: {policy: Never, stableSeconds: 0}
  # Long timeouts, so that no agent is suspected while the machine is busy.
  safety: {mode: %s, leaseMillis: 2000}
  timing: {patienceMillis: 2000}
  application: {session: Required}
  members: [%s]
`

// startAgents starts agents and returns the addresses of their APIs.
func startAgents(t *testing.T, n int, mode string) []string {
	t.Helper()
	var listeners []net.Listener
	var members []string
	for i := range n {
		listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
		must(t, err)
		listeners = append(listeners, listener)
		members = append(members, fmt.Sprintf(`{name: %c, priority: %d, address: "%s"}`, 'a'+i, 10*(i+1), listener.Addr()))
	}
	var addresses []string
	for i, listener := range listeners {
		state := filepath.Join(t.TempDir(), "state")
		text := fmt.Sprintf(configuration, string(rune('a'+i)), listener.Addr(), state, mode, strings.Join(members, ", "))
		c, err := config.Parse("agent.yaml", []byte(text))
		must(t, err)
		addresses = append(addresses, startAgent(t, c, uint32(i+1), listener))
	}
	return addresses
}

func startAgent(t *testing.T, c *config.Config, life uint32, listener net.Listener) string {
	t.Helper()
	store, err := state.Open(c.State)
	must(t, err)
	registry := metrics.New()
	a, err := agent.New(t.Context(), c, agent.Options{
		Clock: clock.New(time.Now()), Life: life, Listener: listener, Store: store,
		Metrics: func(of string) group.Metrics { return registry.ForGroup(of) }, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	local, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- api.Serve(ctx, local, api.New(a.Local(), registry.Handler(a))) }()
	t.Cleanup(func() {
		a.Close(ctx)
		cancel()
		must(t, <-stopped)
		must(t, store.Close())
	})
	return "http://" + local.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tenureStart is a call of a client's function.
type tenureStart struct {
	at    string
	token uint64
	ctx   context.Context
}

// TestOneCoordinatorAtATime hands over between real agents, in real time. No function
// starts before the former one has returned, and each token is higher than the former.
// Available doesn't promise either of them.
func TestOneCoordinatorAtATime(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"Available", "Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			agents := startAgents(t, 3, mode)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var coordinators atomic.Int32
			started := make(chan tenureStart, 100)
			var running sync.WaitGroup
			for _, at := range agents {
				running.Go(func() {
					err := client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
						// In Available, there may be two coordinators if the machine stalls for longer than the suspicion timeout.
						if n := coordinators.Add(1); n > 1 && mode != "Available" {
							t.Errorf("got %d coordinators at the same time", n)
						}
						defer coordinators.Add(-1)
						started <- tenureStart{at, token, ctx}
						<-ctx.Done()
						return context.Cause(ctx)
					}, client.At(at))
					if ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
			last := <-started
			for range 4 {
				state, err := client.Leader(ctx, "ledger", client.At(last.at))
				must(t, err)
				if state.Leading && (state.Token != last.token || !state.Until.IsZero()) {
					t.Fatalf("got state %+v, want token %d and no promise", state, last.token)
				}
				const promise = 100 * time.Millisecond
				state, err = client.LeaderWithPromise(ctx, "ledger", promise, client.At(last.at))
				must(t, err)
				if state.Leading && (state.Token != last.token || state.Until.IsZero() != (mode == "Available") || time.Until(state.Until) > promise) {
					t.Fatalf("got state %+v, want token %d, and a promise of at most %s unless the mode is Available", state, last.token, promise)
				}
				stepDown(t, last)
				next := <-started
				if next.token <= last.token && mode != "Available" {
					t.Fatalf("got token %d after %d, want a higher one", next.token, last.token)
				}
				last = next
			}
			cancel()
			running.Wait()
		})
	}
}

// stepDown requests a handover until the tenure has ended.
func stepDown(t *testing.T, l tenureStart) {
	t.Helper()
	for deadline := time.Now().Add(testwait.Limit); l.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.at+"/v1/groups/ledger/step-down", http.NoBody)
		must(t, err)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		response.Body.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the tenure hasn't ended within %s; last response: %s", testwait.Limit, response.Status)
		}
	}
}

// TestNextCoordinatorAfterTheSessionEnds ends the coordinator's client, but not its agent.
func TestNextCoordinatorAfterTheSessionEnds(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 3, "Majority")
	started := make(chan tenureStart, 100)
	cancels := map[string]context.CancelFunc{}
	var running sync.WaitGroup
	for _, at := range agents {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[at] = cancel
		running.Go(func() {
			_ = client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
				started <- tenureStart{at, token, ctx}
				<-ctx.Done()
				return nil
			}, client.At(at))
		})
	}
	first := <-started
	// The watches of the other agents yield the coordinator.
	ctx := testwait.Context(t)
	for _, at := range agents {
		if at == first.at {
			continue
		}
		for state, err := range client.Watch(ctx, "ledger", client.At(at)) {
			must(t, err)
			if state.Term == first.token>>14 && state.Coordinator != "" {
				break
			}
		}
		must(t, ctx.Err())
	}
	cancels[first.at]()
	second := <-started
	if second.at == first.at || second.token <= first.token {
		t.Fatalf("got coordinator %s with token %d after %s with token %d", second.at, second.token, first.at, first.token)
	}
	for _, cancel := range cancels {
		cancel()
	}
	running.Wait()
}
