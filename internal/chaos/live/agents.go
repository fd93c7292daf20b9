package live

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentapi "github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/chaos"
)

// The intervals at which agents are queried, and at which forwarding is retried.
const (
	coordinatorInterval = 20 * time.Millisecond
	followerInterval    = 250 * time.Millisecond
	forwardRetry        = 200 * time.Millisecond
	queryTimeout        = 2 * time.Second
	// maxTimeouts is the number of queries without a response, one after the other, after which forwarding starts again: a forwarded
	// port may remain silent after its node was isolated.
	maxTimeouts = 5
)

// observeAgent observes the agent of a pod until ctx ends.
func (o *Observer) observeAgent(ctx context.Context, agent chaos.Agent) {
	for ctx.Err() == nil {
		o.observeOnce(ctx, agent)
		o.agentChanged(&chaos.Change{From: agent, At: time.Now(), Gone: true})
		wait(ctx, forwardRetry)
	}
}

// observeOnce observes an agent through one forwarded port, until that breaks.
func (o *Observer) observeOnce(ctx context.Context, agent chaos.Agent) {
	port, err := o.forward(ctx, types.NamespacedName{Namespace: o.name.Namespace, Name: agent.Pod})
	if err != nil {
		return // The agent isn't observed, which Problems reports.
	}
	if !o.exists(ctx, agent) {
		port.Close()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var observing sync.WaitGroup
	defer observing.Wait()
	defer port.Close()
	defer cancel()
	ended := make(chan struct{})
	observing.Go(func() {
		defer close(ended)
		o.watchAgent(ctx, agent, port.URL)
	})
	silent := make(chan struct{})
	observing.Go(func() {
		defer close(silent)
		o.queryAgent(ctx, agent, port.URL)
	})
	select {
	case <-port.Ended:
	case <-ended:
	case <-silent:
	case <-ctx.Done():
	}
}

// exists reports whether the pod of an agent exists. A port is forwarded to the pod that has the name: if that is another one by now, its
// answers must not count as those of the former one.
func (o *Observer) exists(ctx context.Context, agent chaos.Agent) bool {
	var list corev1.PodList
	err := o.client.List(ctx, &list, client.InNamespace(o.name.Namespace), client.MatchingFields{"metadata.name": agent.Pod})
	return err == nil && len(list.Items) == 1 && string(list.Items[0].UID) == agent.UID
}

// watchAgent records the changes that an agent reports.
func (o *Observer) watchAgent(ctx context.Context, agent chaos.Agent, url string) {
	for state, err := range agentapi.Watch(ctx, o.name.Name, agentapi.At(url)) {
		change := &chaos.Change{From: agent, At: time.Now(), Gone: err != nil}
		if err == nil {
			change.Coordinator, change.Leading, change.Term = state.Coordinator, state.Leading, state.Term
		}
		o.agentChanged(change)
	}
}

func (o *Observer) agentChanged(change *chaos.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	if p := o.pods[types.UID(change.From.UID)]; p != nil {
		p.view = change
	}
	o.record.Changes = append(o.record.Changes, *change)
}

// queryAgent queries an agent periodically and records when it leads, until it doesn't respond any more. A query asks for no promise,
// which would delay hand-overs.
func (o *Observer) queryAgent(ctx context.Context, agent chaos.Agent, url string) {
	for timeouts := 0; ctx.Err() == nil && timeouts < maxTimeouts; {
		query, cancel := context.WithTimeout(ctx, queryTimeout)
		sent := time.Now()
		state, err := agentapi.Leader(query, o.name.Name, agentapi.At(url))
		received := time.Now()
		if timeouts++; query.Err() == nil {
			timeouts = 0
		}
		cancel()
		interval := followerInterval
		if err == nil && state.Leading {
			interval = coordinatorInterval
			o.mu.Lock()
			o.record.Answers = append(o.record.Answers, chaos.Answer{From: agent, Sent: sent, Received: received, Term: state.Term, Token: state.Token})
			o.mu.Unlock()
		}
		wait(ctx, interval)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
