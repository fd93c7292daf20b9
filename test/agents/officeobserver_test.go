package agents

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// officeObserver watches agents, which may restart. It measures for how long there is no
// coordinator, and checks that there are never two, and that tokens rise.
type officeObserver struct {
	cluster *agentcluster.Cluster
	names   []string

	mutex sync.Mutex
	// views are the last states that the agents reported.
	views map[string]group.Leader
	// since is when the time was counted last. While someone leads, it doesn't count as vacant.
	since            time.Time
	observed, vacant time.Duration
	// highest is the state with the highest token, and tenures the number of tokens.
	highest group.Leader
	tenures int
	errors  []error
}

// observeOffice watches the agents with these names until the test ends.
func observeOffice(t *testing.T, cluster *agentcluster.Cluster, names ...string) *officeObserver {
	t.Helper()
	o := &officeObserver{cluster: cluster, names: names, views: map[string]group.Leader{}, since: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	for _, name := range names {
		streams.Go(func() { o.watch(ctx, name) })
	}
	t.Cleanup(func() {
		cancel()
		streams.Wait()
		expect.Succeed(t, errors.Join(o.errors...))
	})
	return o
}

// watch reads the stream of one agent, and its next stream after a restart.
func (o *officeObserver) watch(ctx context.Context, name string) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		// The agent has ended.
		_ = o.cluster.Watch(ctx, name, func(event agentcluster.Observation) { o.update(ctx, event.Leader) })
		o.update(ctx, group.Leader{Self: name})
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

func (o *officeObserver) update(ctx context.Context, state group.Leader) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.count()
	o.views[state.Self] = state
	if !state.Leading {
		return
	}
	for _, other := range o.views {
		if other.Self != state.Self && other.Leading {
			o.check(ctx, other, state)
		}
	}
	switch {
	case state.Token < o.highest.Token:
		o.check(ctx, state)
	case state.Token > o.highest.Token:
		o.highest = state
		o.tenures++
	}
}

// check records an error if all these agents still lead.
func (o *officeObserver) check(ctx context.Context, states ...group.Leader) {
	if stillLead(ctx, o.cluster, states...) {
		o.errors = append(o.errors, fmt.Errorf("%+v: want one coordinator, with a token of at least %d, which %s had", states,
			o.highest.Token, o.highest.Self))
	}
}

// stillLead reports whether all these agents lead in the same tenures as before, asked in this
// order. That two streams report one tenure each proves nothing, because the event that ends
// the former may arrive later. But if its coordinator, asked after the event of the next one,
// still leads, and the next one does after that, then there were two.
func stillLead(ctx context.Context, cluster *agentcluster.Cluster, states ...group.Leader) bool {
	for _, want := range states {
		if got, err := cluster.Leader(ctx, want.Self); err != nil || !got.Leading || got.Token != want.Token {
			return false
		}
	}
	return true
}

// count adds the time since the last call.
func (o *officeObserver) count() {
	now := time.Now()
	o.observed += now.Sub(o.since)
	for _, view := range o.views {
		if view.Leading {
			o.since = now
			return
		}
	}
	o.vacant += now.Sub(o.since)
	o.since = now
}

// measure returns the observed time, the part of it without a coordinator, and the number of tenures so far.
func (o *officeObserver) measure() (observed, vacant time.Duration, tenures int) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.count()
	return o.observed, o.vacant, o.tenures
}

// witness measures for how long threads wait for a CPU.
type witness struct {
	done    chan struct{}
	threads sync.WaitGroup
	mutex   sync.Mutex
	longest time.Duration
}

// measure measures how late one thread wakes up.
func (w *witness) measure() {
	const interval = 10 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for before := time.Now(); ; {
		select {
		case <-w.done:
			return
		case <-time.After(interval):
		}
		now := time.Now()
		w.mutex.Lock()
		w.longest = max(w.longest, now.Sub(before)-interval)
		w.mutex.Unlock()
		before = now
	}
}

// stop returns the longest wait.
func (w *witness) stop() time.Duration {
	close(w.done)
	w.threads.Wait()
	return w.longest
}
