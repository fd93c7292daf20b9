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
	const rounds, warmUp, leastGain = 10, 300 * time.Millisecond, 150 * time.Millisecond
	const prepared, plain = "prepared", "plain"
	var groups []agentcluster.Group
	for _, name := range []string{prepared, plain} {
		group := agentcluster.Group{
			Name:       name,
			Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 1000},
			Preemption: agentcluster.Preemption{Policy: "Never"},
		}
		group.Application.Session = "Required"
		groups = append(groups, group)
	}
	g := newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: groups[0], Further: groups[1:]})
	g.startConnected()
	var mu sync.Mutex
	ready := map[string]readiness{} // of the last tenure in each group
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for _, group := range groups {
		for _, name := range g.Names() {
			running.Go(func() {
				var warm <-chan time.Time
				start := func() <-chan time.Time {
					mu.Lock()
					defer mu.Unlock()
					if warm == nil {
						warm = time.After(warmUp)
					}
					return warm
				}
				options := []client.Option{client.At("http://" + g.Agent(name).API)}
				if group.Name == prepared {
					options = append(options, client.Prepare(func(context.Context, time.Duration) { start() }))
				}
				_ = client.Run(ctx, group.Name, func(ctx context.Context, _ uint64) error {
					select {
					case <-start():
						mu.Lock()
						ready[group.Name] = readiness{name, time.Now()}
						mu.Unlock()
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
	// awaitReady waits until the application of a group is ready beside one of the agents, after a time.
	awaitReady := func(group string, after time.Time, beside ...string) (r readiness) {
		g.in(group).await(func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if r = ready[group]; !slices.Contains(beside, r.agent) || !r.at.After(after) {
				return fmt.Errorf("the application of %s is ready beside %q, not beside one of %q", group, r.agent, beside)
			}
			return nil
		})
		return r
	}
	gaps := map[string][]time.Duration{}
	measured := func(group agentcluster.Group) bool { return len(gaps[group.Name]) >= rounds }
	for round := 0; slices.ContainsFunc(groups, func(group agentcluster.Group) bool { return !measured(group) }); round++ {
		// Groups elect independently. The paused agent leads at least one of them, and normally all.
		leads := map[string]string{}
		for _, group := range groups {
			g.in(group.Name).await(func(ctx context.Context) error { return g.in(group.Name).allEligible(ctx) })
			leads[group.Name] = g.in(group.Name).awaitCoordinator()
			awaitReady(group.Name, time.Time{}, leads[group.Name])
		}
		paused := leads[groups[round%len(groups)].Name]
		g.pause(paused)
		began := time.Now()
		for group, leader := range leads {
			if leader == paused {
				gaps[group] = append(gaps[group], awaitReady(group, began, g.others(paused)...).at.Sub(began))
			}
		}
		g.resume(paused)
		g.awaitConnected()
	}
	t.Logf("ready after %s, prepared after %s", median(gaps[plain]), median(gaps[prepared]))
	expect.AtMostf(t, median(gaps[prepared]), median(gaps[plain])-leastGain, "time until the prepared one is ready")
}

// readiness is the agent beside which an application became ready, and when.
type readiness struct {
	agent string
	at    time.Time
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
