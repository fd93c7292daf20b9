package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestPreparedSuccessorLeadsEarlier measures how long nobody serves after the coordinator has fallen silent, if
// applications need a while to become ready. Some use Prepare, and others don't, at the same time.
func TestPreparedSuccessorLeadsEarlier(t *testing.T) {
	need.Complete(t)
	const rounds, warmUp = 10, 300 * time.Millisecond
	leastGains := map[int32]time.Duration{500: 30 * time.Millisecond, 1000: 150 * time.Millisecond}
	var groups []agentcluster.Group
	for lease := range leastGains {
		for _, prepares := range []bool{false, true} {
			group := agentcluster.Group{
				Name:       fmt.Sprintf("lease-%d-%t", lease, prepares),
				Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: lease},
				Preemption: agentcluster.Preemption{Policy: "Never"},
			}
			group.Application.Session = "Required"
			groups = append(groups, group)
		}
	}
	g := newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: groups[0], Further: groups[1:]})
	g.startConnected()
	type readiness struct{ group, agent string }
	ready := make(chan readiness, 100)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for _, group := range groups {
		for _, name := range g.Names() {
			running.Go(func() {
				var warm <-chan time.Time
				var mu sync.Mutex
				start := func() <-chan time.Time {
					mu.Lock()
					defer mu.Unlock()
					if warm == nil {
						warm = time.After(warmUp)
					}
					return warm
				}
				options := []client.Option{client.At("http://" + g.Agent(name).API)}
				if prepares := group.Name == fmt.Sprintf("lease-%d-true", group.Safety.LeaseMillis); prepares {
					options = append(options, client.Prepare(func(context.Context, time.Duration) { start() }))
				}
				_ = client.Run(ctx, group.Name, func(ctx context.Context, _ uint64) error {
					select {
					case <-start():
						ready <- readiness{group.Name, name}
						<-ctx.Done()
					case <-ctx.Done():
					}
					mu.Lock()
					defer mu.Unlock()
					warm = nil
					return nil
				}, options...)
			})
		}
	}
	gaps := map[string][]time.Duration{}
	for round := range rounds + 1 {
		began, leader := time.Now(), ""
		if round > 0 {
			leader = g.awaitCoordinator()
			g.pause(leader)
			began = time.Now()
		}
		for range groups {
			r := <-ready
			if round > 0 {
				gaps[r.group] = append(gaps[r.group], time.Since(began))
			}
		}
		if round > 0 {
			g.resume(leader)
		}
		g.awaitConnected()
		for _, group := range groups {
			g.in(group.Name).await(func(ctx context.Context) error { return g.in(group.Name).allEligible(ctx) })
		}
	}
	for lease, least := range leastGains {
		of := func(prepares bool) time.Duration { return median(gaps[fmt.Sprintf("lease-%d-%t", lease, prepares)]) }
		plain, prepared := of(false), of(true)
		t.Logf("lease of %d ms: ready after %s, prepared after %s", lease, plain, prepared)
		expect.AtMostf(t, prepared, plain-least, "time until the prepared application is ready, with a lease of %d ms", lease)
	}
}

func median(of []time.Duration) time.Duration { return slices.Sorted(slices.Values(of))[len(of)/2] }

// allEligible returns an error unless the application beside each agent may lead.
func (g *testGroup) allEligible(ctx context.Context) (problem error) {
	for _, name := range g.Names() {
		status, err := g.Status(ctx, name)
		if err == nil && len(status.Sessions) == 0 {
			err = errors.New("the application of " + name + " has no session")
		}
		problem = errors.Join(problem, err)
	}
	return problem
}
