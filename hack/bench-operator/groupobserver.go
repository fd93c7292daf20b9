package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The sample group of config/samples, and the namespace in which it is created.
const (
	sample          = "ledger"
	sampleNamespace = "conclave-bench"
	sampleFile      = "config/samples/statefulset.yaml"
	serviceName     = "ledger-coordinator"
)

// groupObserver records the status of one group, its pods and the endpoints of its
// Service. Its watches are open before a round begins.
type groupObserver struct {
	mu    sync.Mutex
	group *v1.ElectionGroup
	pods  map[string]*corev1.Pod
	// endpoints are the addresses to which the Service routes.
	endpoints []string
	// The times at which each status, and each endpoint by its address, was first observed
	// since the round began.
	statuses []observedStatus
	routes   map[string]time.Time
	err      error
	// changed has capacity 1. An element means that await must check its condition.
	changed chan struct{}
}

type observedStatus struct {
	coordinator v1.Coordinator
	at          time.Time
}

func newGroupObserver() *groupObserver {
	o := &groupObserver{pods: map[string]*corev1.Pod{}, changed: make(chan struct{}, 1)}
	o.begin()
	return o
}

// begin begins a round: it discards the recorded times.
func (o *groupObserver) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses, o.routes = nil, map[string]time.Time{}
}

// watch watches the objects of a kind in the group's namespace, until ctx is done.
func (o *groupObserver) watch(ctx context.Context, c client.WithWatch, list client.ObjectList) error {
	stream, err := c.Watch(ctx, list, client.InNamespace(sampleNamespace))
	if err != nil {
		return err
	}
	go func() {
		defer stream.Stop()
		for event := range stream.ResultChan() {
			o.record(event, time.Now())
		}
		o.mu.Lock()
		o.err = fmt.Errorf("the watch for %T ended", list)
		o.mu.Unlock()
		o.notify()
	}()
	return nil
}

func (o *groupObserver) record(event watch.Event, at time.Time) {
	o.mu.Lock()
	switch object := event.Object.(type) {
	case *v1.ElectionGroup:
		if object.Name != sample {
			break
		}
		o.group = object
		if c := object.Status.Coordinator; c != nil {
			o.statuses = append(o.statuses, observedStatus{*c, at})
		}
	case *corev1.Pod:
		o.pods[object.Name] = object
		if event.Type == watch.Deleted {
			delete(o.pods, object.Name)
		}
	case *discoveryv1.EndpointSlice:
		if object.Labels[discoveryv1.LabelServiceName] == serviceName {
			o.endpoints = nil
			for _, endpoint := range object.Endpoints {
				o.endpoints = append(o.endpoints, endpoint.Addresses...)
			}
			if len(o.endpoints) == 1 && o.routes[o.endpoints[0]].IsZero() {
				o.routes[o.endpoints[0]] = at
			}
		}
	}
	o.mu.Unlock()
	o.notify()
}

func (o *groupObserver) notify() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// await returns when the recorded state satisfies the condition.
func (o *groupObserver) await(ctx context.Context, condition string, limit time.Duration, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		o.mu.Lock()
		done, err := holds(), o.err
		o.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w; observed: %s", limit, condition, ctx.Err(), o.describe())
		}
	}
}

func (o *groupObserver) describe() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := "no group"
	if o.group != nil {
		text = fmt.Sprintf("term %d", o.group.Status.Term)
		for _, p := range o.group.Status.Processes {
			text += fmt.Sprintf(", %s %s %s", p.Pod, p.Status, p.Reason)
		}
	}
	return text + fmt.Sprintf("; the Service routes to %v", o.endpoints)
}

// settled reports whether all members are ready, the one with the highest priority leads,
// and the status, the role labels and the Service agree. The caller holds mu.
func (o *groupObserver) settled() bool {
	g := o.group
	if g == nil || g.Status.Coordinator == nil || len(g.Status.Processes) != len(g.Spec.Members) {
		return false
	}
	for i, p := range g.Status.Processes {
		role, status := v1.RoleFollower, v1.ProcessNormal
		if i == 0 {
			role, status = v1.RoleCoordinator, v1.ProcessCoordinator
		}
		pod := o.pods[p.Pod]
		if p.Status != status || pod == nil || !ready(pod) || pod.Labels[v1.RoleLabel(sample)] != role {
			return false
		}
	}
	leader := o.pods[g.Status.Coordinator.Pod]
	return leader != nil && slices.Equal(o.endpoints, []string{leader.Status.PodIP})
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// coordinator returns the coordinator and its pod.
func (o *groupObserver) coordinator() (v1.Coordinator, *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := *o.group.Status.Coordinator
	return c, o.pods[c.Pod].DeepCopy()
}

var watchedKinds = []func() client.ObjectList{
	func() client.ObjectList { return &v1.ElectionGroupList{} },
	func() client.ObjectList { return &corev1.PodList{} },
	func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
}
