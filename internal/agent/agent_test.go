package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/metrics"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startAgents starts agents a, b, c... in this process.
func startAgents(t *testing.T, n int, mode office.Mode, algorithm string,
	change ...func(*config.Group),
) map[string]*Agent {
	t.Helper()
	g, listeners := newGroup(t, n, mode, algorithm)
	for _, f := range change {
		f(&g)
	}
	agents := map[string]*Agent{}
	for i, m := range g.List.Members {
		agents[m.Name] = startAgent(t, g, m.Name, uint32(i+1), t.TempDir(), listeners[m.Name])
	}
	return agents
}

// steady makes the timeouts so long that a coordinator keeps its office on a busy machine.
func steady(g *config.Group) {
	g.Safety.Lease, g.Timing.SuspicionTimeout = 8*time.Second, 6*time.Second
}

// newGroup returns a group of a, b, c... with their listeners. The timeouts are short: on
// a busy machine, the coordinator may change at any time.
func newGroup(t *testing.T, n int, mode office.Mode, algorithm string) (config.Group, map[string]net.Listener) {
	t.Helper()
	listeners := map[string]net.Listener{}
	var members []memberlist.Member
	for i := range n {
		listener, err := transport.Listen(t.Context(), "127.0.0.1:0")
		must.Succeed(t, err)
		name := string(rune('a' + i))
		listeners[name] = listener
		members = append(members, memberlist.Member{
			Name: name, Priority: uint32(10 * (i + 1)), Address: listener.Addr().String(),
		})
	}
	return config.Group{
		Name: "ledger", Algorithm: algorithm,
		Safety: config.Safety{Mode: mode, Lease: 500 * time.Millisecond},
		Timing: config.Timing{
			Heartbeat: 100 * time.Millisecond, SuspicionTimeout: 400 * time.Millisecond, Stagger: 50 * time.Millisecond,
			ReplyTimeout: 25 * time.Millisecond, DrainTimeout: 5 * time.Second,
		},
		List: memberlist.List{Version: 1, Members: members},
	}, listeners
}

// startAgent starts an agent with its state in dir.
func startAgent(t *testing.T, g config.Group, self string, life uint32, dir string, listener net.Listener) *Agent {
	t.Helper()
	return startWith(t, self, testOptions(t, life, dir, listener), g)
}

// testOptions are the options of an agent with its state in dir.
func testOptions(t *testing.T, life uint32, dir string, listener net.Listener) Options {
	t.Helper()
	store, err := state.Open(dir)
	must.Succeed(t, err)
	return Options{
		Clock: clock.New(), Store: store, Life: life, Listener: listener,
		Metrics: metrics.New(),
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// startWith starts an agent in groups, until the test ends.
func startWith(t *testing.T, self string, options Options, groups ...config.Group) *Agent {
	t.Helper()
	agent, err := New(t.Context(), &config.Config{Self: self, Domain: "default", Groups: groups}, options)
	must.Succeed(t, err)
	t.Cleanup(func() {
		agent.Close(context.Background())
		options.Store.Close() // restartAgent may have closed it already.
	})
	return agent
}

func awaitCoordinator(t *testing.T, agents map[string]*Agent, coordinator string) {
	t.Helper()
	awaitCoordinatorIn(t, "ledger", agents, coordinator)
}

func awaitCoordinatorIn(t *testing.T, group string, agents map[string]*Agent, coordinator string) {
	t.Helper()
	ctx := testwait.Context(t)
	for name, agent := range agents {
		g, ok := agent.Find(group)
		if !ok {
			t.Fatalf("%s: cannot find group %s", name, group)
		}
		w := g.Watch()
		for {
			change, err := w.Next(ctx)
			if err != nil {
				t.Fatalf("%s: cannot wait for coordinator %s: %v, got %+v", name, coordinator, err, g.Leader())
			}
			if change.Coordinator == coordinator {
				break
			}
		}
	}
}

func TestAgentsElect(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		for _, algorithm := range []string{
			"Bully", "StatusTable", "RingAllIDs", "RingChampion", "RingActiveList", "RingSkip",
		} {
			t.Run(fmt.Sprint(mode, " ", algorithm), func(t *testing.T) {
				t.Parallel()
				agents := startAgents(t, 5, mode, algorithm)
				awaitCoordinator(t, agents, "e")
				began := time.Now()
				agents["e"].Close(t.Context())
				delete(agents, "e")
				awaitCoordinator(t, agents, "d")
				t.Log(time.Since(began))
			})
		}
	}
}

// TestExclusionSurvivesNewSettings, even if the caller doesn't wait until they are applied.
func TestExclusionSurvivesNewSettings(t *testing.T) {
	agents := startAgents(t, 3, office.Majority, "StatusTable")
	awaitCoordinator(t, agents, "c")
	a := agents["a"]
	before, _ := a.Find("ledger")
	must.Succeed(t, before.Exclude(t.Context()))
	next := a.Config().Groups[0]
	next.Session = true // A running election can't change that.
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	prepared, err := a.StoreGroup(next, nil)
	must.Succeed(t, err)
	must.Succeed(t, a.ApplyGroup(canceled, prepared))
	after, ok := a.Find("ledger")
	if !ok || after == before {
		t.Fatalf("got the same group, found=%t; want the agent to have joined it again", ok)
	}
	if excluded, err := after.Excluded(t.Context()); err != nil || !excluded {
		t.Errorf("got excluded=%t, %v with the new settings, want true", excluded, err)
	}
}

// TestReloadAddsAndRemovesGroups without an effect on the other group.
func TestReloadAddsAndRemovesGroups(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 3, office.Majority, "StatusTable", steady)
	awaitCoordinator(t, agents, "c")
	ledger, _ := agents["c"].Find("ledger")
	before := ledger.Leader()
	reload := func(a *Agent, groups ...config.Group) {
		next := *a.Config()
		next.Groups = groups
		must.Succeed(t, a.Reload(t.Context(), &next))
	}
	for _, a := range agents {
		existing := a.Config().Groups[0]
		audit := existing
		audit.Name = "audit"
		reload(a, existing, audit)
	}
	awaitCoordinatorIn(t, "audit", agents, "c")
	for _, a := range agents {
		reload(a, a.Config().Groups[0])
		if _, found := a.Find("audit"); found {
			t.Error("found group audit, which is not in the file")
		}
	}
	if after := ledger.Leader(); after.Term != before.Term || !after.Leading {
		t.Errorf("other group: got coordinator %+v, want %+v", after, before)
	}
}

// TestTermsOfNextListAreHigher: also if the list names departed members, which may have used any term of the last.
func TestTermsOfNextListAreHigher(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 3, office.Majority, "StatusTable", steady)
	awaitCoordinator(t, agents, "c")
	ledger, _ := agents["c"].Find("ledger")
	agents["a"].Close(t.Context())
	for _, name := range []string{"b", "c"} {
		next := *agents[name].Config()
		next.Groups = slices.Clone(next.Groups)
		list := &next.Groups[0].List
		*list = memberlist.List{
			Version: 9, Members: list.Members[1:], Departed: []string{"a"},
			Previous: &memberlist.List{Version: 1, Members: list.Members},
		}
		must.Succeed(t, agents[name].Reload(t.Context(), &next))
	}
	testwait.NoError(t, func() error { // b is ready when it has reported the list.
		next, err := ledger.StepDown(t.Context(), "b")
		if err == nil && election.Term(next.Term).Version() != 9 {
			t.Errorf("got coordinator %+v, want b in a term of version 9", next)
		}
		return err
	})
}

func TestMain(m *testing.M) { os.Exit(testwait.Main(m, 16)) }

// noGroups is the local API of an agent that hasn't started.
type noGroups struct{}

func (noGroups) Names() []string                  { return nil }
func (noGroups) Find(string) (api.Group, bool)    { return nil, false }
func (noGroups) Expects(string) bool              { return false }
func (noGroups) Problems() (own, others []string) { return nil, nil }

// TestProcessEndsIfLocalAPIFailsDuringStart: the process doesn't wait for a certificate,
// for example, if the application cannot reach it.
func TestProcessEndsIfLocalAPIFailsDuringStart(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	local.Close()
	prepared := make(chan struct{})
	p := &Process{
		LocalAPI: local, Groups: noGroups{}, Log: slog.New(slog.DiscardHandler),
		Prepare: func(ctx context.Context) {
			<-ctx.Done()
			close(prepared)
		},
		Start: func(ctx context.Context) (*Started, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("got no error")
		}
	case <-time.After(testwait.Limit):
		t.Fatal("timed out waiting for the process to end")
	}
	select {
	case <-prepared:
	default:
		t.Error("Run returned before Prepare ended")
	}
}
