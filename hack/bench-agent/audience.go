package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// audience watches all agents, each over a stream that is open before anything
// happens, and remembers what they announced.
type audience struct {
	troupe *agentcluster.Cluster
	// news has an element when something was announced since it was last empty.
	news chan struct{}

	mutex sync.Mutex
	// last is the last announcement of each agent that is being watched.
	last map[string]agentcluster.Observation
	// since are all announcements since the round began.
	since []agentcluster.Observation
}

func newAudience(t *agentcluster.Cluster) *audience {
	return &audience{troupe: t, news: make(chan struct{}, 1), last: map[string]agentcluster.Observation{}}
}

// attend starts to watch agents, until ctx ends, and returns when they have
// announced their states.
func (a *audience) attend(ctx context.Context, names ...string) error {
	deadline := time.NewTimer(rest)
	defer deadline.Stop()
	for _, name := range names {
		opened := make(chan struct{})
		go a.watch(ctx, name, sync.OnceFunc(func() { close(opened) }))
		select {
		case <-opened:
		case <-deadline.C:
			return fmt.Errorf("agent %s didn't announce its state within %s", name, rest)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watch opens the stream as soon as the agent answers, and keeps it until it
// breaks.
func (a *audience) watch(ctx context.Context, name string, opened func()) {
	open := false
	_ = agentcluster.Await(ctx, func(ctx context.Context) error {
		err := a.troupe.Watch(ctx, name, func(seen agentcluster.Observation) {
			a.see(name, seen)
			open = true
			opened()
		})
		if open {
			return nil // It has ended, as all streams do.
		}
		return err
	})
}

func (a *audience) see(name string, seen agentcluster.Observation) {
	a.mutex.Lock()
	a.last[name] = seen
	a.since = append(a.since, seen)
	a.mutex.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// begin forgets what was announced before.
func (a *audience) begin() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.since = nil
}

// await returns when what the agents announced makes the condition true.
func (a *audience) await(ctx context.Context, met func(last map[string]agentcluster.Observation, since []agentcluster.Observation) bool) error {
	for {
		a.mutex.Lock()
		done := met(a.last, a.since)
		a.mutex.Unlock()
		if done {
			return nil
		}
		select {
		case <-a.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// describe says what the agents announced since the round began.
func (a *audience) describe() string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var said strings.Builder
	for _, seen := range a.since {
		fmt.Fprintf(&said, "\n    %s: coordinator %q, term %d, leading %t", seen.Leader.Self, seen.Leader.Coordinator, seen.Leader.Term, seen.Leader.Leading)
	}
	return said.String()
}
