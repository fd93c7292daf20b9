package client_test

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
)

const soon = 20 * time.Second

// file is what each agent is told, but for its name and the members.
const file = `
self: %s
listen: %s
state: %s
tls: {insecure: true}
groups:
- name: ledger
  preemption: {policy: Never, stableSeconds: 0}
  # So long that a machine which is busy with something else isn't taken for a crash.
  safety: {mode: %s, leaseMillis: 2000}
  timing: {patienceMillis: 2000}
  application: {session: Required}
  members: [%s]
`

// cast starts agents and gives the addresses of their local APIs.
func cast(t *testing.T, n int, mode string) []string {
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
		text := fmt.Sprintf(file, string(rune('a'+i)), listener.Addr(), state, mode, strings.Join(members, ", "))
		c, err := config.Parse("agent.yaml", []byte(text))
		must(t, err)
		addresses = append(addresses, start(t, c, uint32(i+1), listener))
	}
	return addresses
}

func start(t *testing.T, c *config.Config, life uint32, listener net.Listener) string {
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
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, local, api.New(a.Local(), registry.Handler(a))) }()
	t.Cleanup(func() {
		a.Close(ctx)
		cancel()
		must(t, <-ended)
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

// led is a function that began to lead.
type led struct {
	at    string
	token uint64
	ctx   context.Context
}

// TestOneLeadsAtATime hands the role around between real agents, in real time.
// Nobody begins before the one before has ended, and tokens rise.
func TestOneLeadsAtATime(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"Available", "Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			agents := cast(t, 3, mode)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var leading atomic.Int32
			begun := make(chan led, 100)
			var running sync.WaitGroup
			for _, at := range agents {
				running.Go(func() {
					err := client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
						// In Available two may lead for a while if the machine stalls for longer than the patience.
						if n := leading.Add(1); n > 1 && mode != "Available" {
							t.Errorf("%d lead", n)
						}
						defer leading.Add(-1)
						begun <- led{at, token, ctx}
						<-ctx.Done()
						return context.Cause(ctx)
					}, client.At(at))
					if ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
			last := <-begun
			for range 4 {
				state, err := client.Leader(ctx, "ledger", client.At(last.at))
				must(t, err)
				if state.Leading && (state.Token != last.token || state.Until.IsZero() != (mode == "Available")) {
					t.Fatalf("%+v", state)
				}
				stepDown(t, last)
				next := <-begun
				if next.token <= last.token {
					t.Fatalf("token %d after %d", next.token, last.token)
				}
				last = next
			}
			cancel()
			running.Wait()
		})
	}
}

// stepDown ends a tenure, by handing it over unless it ends by itself.
func stepDown(t *testing.T, l led) {
	t.Helper()
	for deadline := time.Now().Add(soon); l.ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.at+"/v1/groups/ledger/step-down", http.NoBody)
		must(t, err)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		response.Body.Close()
		if time.Now().After(deadline) {
			t.Fatal(response.Status)
		}
	}
}

// TestDeathOfTheApplicationMovesTheRole: a session that ends is enough.
func TestDeathOfTheApplicationMovesTheRole(t *testing.T) {
	t.Parallel()
	agents := cast(t, 3, "Majority")
	begun := make(chan led, 100)
	cancels := map[string]context.CancelFunc{}
	var running sync.WaitGroup
	for _, at := range agents {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[at] = cancel
		running.Go(func() {
			_ = client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
				begun <- led{at, token, ctx}
				<-ctx.Done()
				return nil
			}, client.At(at))
		})
	}
	first := <-begun
	// Whoever watches elsewhere sees it.
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, at := range agents {
		if at == first.at {
			continue
		}
		for state, err := range client.Watch(ctx, "ledger", client.At(at)) {
			must(t, err)
			if state.Term == first.token>>20 && state.Coordinator != "" {
				break
			}
		}
		must(t, ctx.Err())
	}
	cancels[first.at]()
	second := <-begun
	if second.at == first.at || second.token <= first.token {
		t.Fatal(second)
	}
	for _, cancel := range cancels {
		cancel()
	}
	running.Wait()
}
