package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// audience watches the groups, as anybody may.
type audience struct {
	mu sync.Mutex
	// complete are the groups that have a coordinator, all their members up, and
	// all their agents connected.
	complete map[types.NamespacedName]bool
	terms    map[types.NamespacedName]int64
	// awaited are the elections that haven't been seen yet.
	awaited map[types.NamespacedName]awaited
	lags    []time.Duration
	// events is how often a group has changed.
	events int
	ended  error
}

type awaited struct {
	coordinator string
	term        int64
	since       time.Time
}

// attend watches until the context ends.
func attend(ctx context.Context, c client.WithWatch) (*audience, error) {
	a := &audience{
		complete: map[types.NamespacedName]bool{}, terms: map[types.NamespacedName]int64{}, awaited: map[types.NamespacedName]awaited{},
	}
	groups := &v1.ElectionGroupList{}
	if err := c.List(ctx, groups); err != nil {
		return nil, err
	}
	const whole = 2 * 60 * 60 // seconds
	from := &metav1.ListOptions{ResourceVersion: groups.ResourceVersion, TimeoutSeconds: new(int64(whole))}
	stream, err := c.Watch(ctx, groups, &client.ListOptions{Raw: from})
	if err != nil {
		return nil, err
	}
	for i := range groups.Items {
		a.see(&groups.Items[i], time.Now())
	}
	go a.watch(ctx, stream)
	return a, nil
}

func (a *audience) watch(ctx context.Context, stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case event, open := <-stream.ResultChan():
			group, ok := event.Object.(*v1.ElectionGroup)
			if !open || !ok {
				a.end(fmt.Errorf("the watch of the groups ended: %v", event.Object))
				return
			}
			a.see(group, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (a *audience) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = err
}

func (a *audience) see(group *v1.ElectionGroup, at time.Time) {
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events++
	a.terms[key] = group.Status.Term
	a.complete[key] = complete(group)
	wanted, waits := a.awaited[key]
	if c := group.Status.Coordinator; waits && c != nil && c.Pod == wanted.coordinator && c.Term == wanted.term {
		a.lags = append(a.lags, at.Sub(wanted.since))
		delete(a.awaited, key)
	}
}

func complete(group *v1.ElectionGroup) bool {
	s := group.Status
	if s.Coordinator == nil || s.ReadyMembers == nil || int(*s.ReadyMembers) != len(group.Spec.Members) {
		return false
	}
	for _, c := range s.Conditions {
		if c.Type == string(v1.AgentsConnected) {
			return c.Status == "True"
		}
	}
	return false
}

// await expects an election, unless one is still expected of that group.
func (a *audience) await(key types.NamespacedName, w awaited) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.awaited[key]; waits {
		return false
	}
	a.awaited[key] = w
	return true
}

// begin counts an election as sent from this moment on.
func (a *audience) begin(key types.NamespacedName, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.awaited[key]
	w.since = at
	a.awaited[key] = w
}

// term is that of a group, as far as it was seen.
func (a *audience) term(key types.NamespacedName) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.terms[key]
}

// completed is how many groups are complete.
func (a *audience) completed() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := 0
	for _, c := range a.complete {
		if c {
			count++
		}
	}
	return count, a.ended
}

// outstanding is how many elections haven't been seen.
func (a *audience) outstanding() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.awaited), a.ended
}

// changes is how often a group has changed so far.
func (a *audience) changes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events
}

// result is what was seen of the elections: how long each took, and which were
// never seen.
func (a *audience) result() (lags []time.Duration, missed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, w := range a.awaited {
		missed = append(missed, fmt.Sprintf("%s: that %s leads in term %d wasn't seen", key, w.coordinator, w.term))
	}
	return a.lags, missed
}
