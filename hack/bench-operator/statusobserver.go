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

// statusObserver watches the statuses of all groups through the API server.
type statusObserver struct {
	mu sync.Mutex
	// complete tells whether a group has a coordinator, all its members are ready and all its agents are connected.
	complete map[types.NamespacedName]bool
	terms    map[types.NamespacedName]int64
	// pending are the elections that no status has shown yet.
	pending map[types.NamespacedName]election
	lags    []time.Duration
	// events is the number of changes of groups.
	events int
	err    error
}

type election struct {
	coordinator string
	term        int64
	begun       time.Time
}

func newStatusObserver() *statusObserver {
	return &statusObserver{
		complete: map[types.NamespacedName]bool{}, terms: map[types.NamespacedName]int64{},
		pending: map[types.NamespacedName]election{},
	}
}

// observeStatuses watches all groups until ctx is done.
func observeStatuses(ctx context.Context, c client.WithWatch) (*statusObserver, error) {
	o := newStatusObserver()
	groups := &v1.ElectionGroupList{}
	if err := c.List(ctx, groups); err != nil {
		return nil, err
	}
	const watchSeconds = 2 * 60 * 60 // longer than any run
	from := &metav1.ListOptions{ResourceVersion: groups.ResourceVersion, TimeoutSeconds: new(int64(watchSeconds))}
	stream, err := c.Watch(ctx, groups, &client.ListOptions{Raw: from})
	if err != nil {
		return nil, err
	}
	for i := range groups.Items {
		o.record(&groups.Items[i], time.Now())
	}
	go o.watch(ctx, stream)
	return o, nil
}

func (o *statusObserver) watch(ctx context.Context, stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case event, open := <-stream.ResultChan():
			group, ok := event.Object.(*v1.ElectionGroup)
			if !open || !ok {
				o.fail(fmt.Errorf("the watch for ElectionGroups ended: %v", event.Object))
				return
			}
			o.record(group, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (o *statusObserver) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *statusObserver) record(group *v1.ElectionGroup, at time.Time) {
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events++
	o.terms[key] = group.Status.Term
	o.complete[key] = complete(group)
	e, found := o.pending[key]
	if c := group.Status.Coordinator; found && c != nil && c.Pod == e.coordinator && c.Term == e.term {
		o.lags = append(o.lags, at.Sub(e.begun))
		delete(o.pending, key)
	}
}

func complete(group *v1.ElectionGroup) bool {
	s := group.Status
	if s.Coordinator == nil || s.ReadyMembers == nil || int(*s.ReadyMembers) != len(group.Spec.Members) {
		return false
	}
	for _, c := range s.Conditions {
		if c.Type == string(v1.ConditionAgentsConnected) {
			return c.Status == "True"
		}
	}
	return false
}

// expect announces an election of a group. It returns false if the group's previous election is still pending.
func (o *statusObserver) expect(key types.NamespacedName, e election) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, found := o.pending[key]; found {
		return false
	}
	o.pending[key] = e
	return true
}

// begin sets the time from which the lag of a group's pending election is measured.
func (o *statusObserver) begin(key types.NamespacedName, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.pending[key]
	e.begun = at
	o.pending[key] = e
}

// term returns the latest term in a group's status.
func (o *statusObserver) term(key types.NamespacedName) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.terms[key]
}

// completeGroups returns the number of groups whose status is complete.
func (o *statusObserver) completeGroups() (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := 0
	for _, c := range o.complete {
		if c {
			count++
		}
	}
	return count, o.err
}

// pendingElections returns the number of elections that no status has shown yet.
func (o *statusObserver) pendingElections() (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending), o.err
}

// changes returns the number of changes of groups so far.
func (o *statusObserver) changes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.events
}

// result returns the lag of each election that a status has shown, and a message for each one that is still pending.
func (o *statusObserver) result() (lags []time.Duration, missed []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, e := range o.pending {
		missed = append(missed,
			fmt.Sprintf("%s: the status didn't show that %s leads in term %d", key, e.coordinator, e.term))
	}
	return o.lags, missed
}
