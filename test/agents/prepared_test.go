package agents

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestSuccessorPreparesWhileFormerLeaseRuns: the coordinator falls silent, long before its lease ends.
func TestSuccessorPreparesWhileFormerLeaseRuns(t *testing.T) {
	need.Complete(t)
	group := agentcluster.Group{
		Name: "prepared", Safety: agentcluster.Safety{Mode: "Majority", LeaseMillis: 4000},
		Preemption: agentcluster.Preemption{Policy: "Never"},
	}
	group.Application.Session = "Required"
	g := newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: group})
	g.startConnected()
	var mu sync.Mutex
	prepared, led := map[string]time.Time{}, map[string]time.Time{} // the last time, by agent
	note := func(in map[string]time.Time, agent string) {
		mu.Lock()
		defer mu.Unlock()
		in[agent] = time.Now()
	}
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for _, name := range g.Names() {
		running.Go(func() {
			_ = client.Run(ctx, group.Name, func(ctx context.Context, _ uint64) error {
				note(led, name)
				<-ctx.Done()
				return nil
			}, client.At("http://"+g.Agent(name).API),
				client.Prepare(func(context.Context, time.Duration) { note(prepared, name) }))
		})
	}
	g.await(g.allEligible)
	former := g.awaitCoordinator()
	paused := time.Now()
	g.pause(former)
	g.await(func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range g.others(former) {
			if at := led[name]; at.After(paused) {
				in := prepared[name]
				expect.Equalf(t, in.After(paused) && in.Before(at), true, "%s prepares before it leads", name)
				return nil
			}
		}
		return errors.New("no successor leads")
	})
	g.resume(former)
}

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
