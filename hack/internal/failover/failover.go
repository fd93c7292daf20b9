// Package failover measures how long agents need to follow another coordinator after theirs was taken away.
package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// Measure takes the coordinator away, on which all agents agree. It returns the next one, and the time until all other
// agents followed it. The function inject returns the time just before the fault.
func Measure(
	ctx context.Context, agents *agentcluster.Cluster, coordinator string, inject func() (time.Time, error),
) (next string, took time.Duration, err error) {
	survivors := slices.DeleteFunc(agents.Running(), func(name string) bool { return name == coordinator })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := Watch(ctx, agents, survivors)
	if err != nil {
		return "", 0, err
	}
	injected, err := inject()
	if err != nil {
		return "", 0, err
	}
	last := injected
	followed := map[string]string{}
	for {
		select {
		case event := <-events:
			next, followed[event.Leader.Self] = event.Leader.Coordinator, event.Leader.Coordinator
			if event.At.After(last) {
				last = event.At
			}
			if next != "" && next != coordinator && countFollowers(followed, next) == len(survivors) {
				return next, last.Sub(injected), nil
			}
		case <-ctx.Done():
			return "", 0,
				fmt.Errorf("the survivors of %s don't agree on a new coordinator: %v: %w", coordinator, followed, ctx.Err())
		}
	}
}

func countFollowers(followed map[string]string, coordinator string) (n int) {
	for _, other := range followed {
		if other == coordinator {
			n++
		}
	}
	return n
}

// Watch watches agents until ctx ends. It returns when each of them has sent its present state, so that the time of a
// later event doesn't include the setup of a connection.
func Watch(ctx context.Context, agents *agentcluster.Cluster, names []string) (<-chan agentcluster.Observation, error) {
	const several = 10 // A caller that doesn't receive for a while must not make the times of later events wrong.
	events := make(chan agentcluster.Observation, several*len(names))
	for _, name := range names {
		go func() {
			// If a stream breaks, an event that the caller waits for doesn't arrive.
			_ = agents.Watch(ctx, name, func(event agentcluster.Observation) {
				select {
				case events <- event:
				case <-ctx.Done():
				}
			})
		}()
	}
	opened := map[string]bool{}
	for len(opened) < len(names) {
		select {
		case event := <-events:
			opened[event.Leader.Self] = true
		case <-ctx.Done():
			return nil, fmt.Errorf("only %d of %d agents have sent their state: %w", len(opened), len(names), ctx.Err())
		}
	}
	return events, nil
}
