package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// observer records the events of all agents. Its watch streams are open before a round
// begins, so that a measured time doesn't include a connection setup.
type observer struct {
	cluster *agentcluster.Cluster
	// changed has capacity 1. An element means that events arrived since await last
	// received from it.
	changed chan struct{}

	mutex sync.Mutex
	// last is the last event of each watched agent.
	last map[string]agentcluster.Observation
	// events are all events since the round began.
	events []agentcluster.Observation
}

func newObserver(c *agentcluster.Cluster) *observer {
	return &observer{cluster: c, changed: make(chan struct{}, 1), last: map[string]agentcluster.Observation{}}
}

// watch watches agents until ctx is done. It returns when each of them has sent its
// present state.
func (o *observer) watch(ctx context.Context, names ...string) error {
	deadline := time.NewTimer(settleTimeout)
	defer deadline.Stop()
	for _, name := range names {
		opened := make(chan struct{})
		go o.watchAgent(ctx, name, sync.OnceFunc(func() { close(opened) }))
		select {
		case <-opened:
		case <-deadline.C:
			return fmt.Errorf("agent %s didn't send its state within %s", name, settleTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// watchAgent opens the stream as soon as the agent accepts connections, and reads it
// until it ends. It doesn't open a second stream.
func (o *observer) watchAgent(ctx context.Context, name string, opened func()) {
	open := false
	_ = agentcluster.Await(ctx, func(ctx context.Context) error {
		err := o.cluster.Watch(ctx, name, func(event agentcluster.Observation) {
			o.record(name, event)
			open = true
			opened()
		})
		if open {
			return nil // The stream has ended, because the agent was killed or ctx is done.
		}
		return err
	})
}

func (o *observer) record(name string, event agentcluster.Observation) {
	o.mutex.Lock()
	o.last[name] = event
	o.events = append(o.events, event)
	o.mutex.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// begin begins a round: it discards the recorded events, except the last of each agent.
func (o *observer) begin() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.events = nil
}

// await returns when the recorded events satisfy the condition.
func (o *observer) await(ctx context.Context, holds func(last map[string]agentcluster.Observation, events []agentcluster.Observation) bool) error {
	for {
		o.mutex.Lock()
		done := holds(o.last, o.events)
		o.mutex.Unlock()
		if done {
			return nil
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// describe lists the events since the round began.
func (o *observer) describe() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	var text strings.Builder
	for _, event := range o.events {
		fmt.Fprintf(&text, "\n    %s: coordinator %q, term %d, leading %t", event.Leader.Self, event.Leader.Coordinator, event.Leader.Term, event.Leader.Leading)
	}
	return text.String()
}
