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

// The group of config/samples, and where it is put.
const (
	sample      = "ledger"
	sampleSpace = "conclave-bench"
	sampleFile  = "config/samples/statefulset.yaml"
	serviceName = "ledger-coordinator"
)

// sightings are what was seen of one group, each over a watch that is open before
// anything happens.
type sightings struct {
	mu    sync.Mutex
	group *v1.ElectionGroup
	pods  map[string]*corev1.Pod
	// leadsTo are the addresses that the Service leads to.
	leadsTo []string
	// Since the round began: when each status, label and endpoint was first seen.
	statuses []seenStatus
	labelled map[string]time.Time
	routed   map[string]time.Time
	ended    error
	news     chan struct{}
}

type seenStatus struct {
	coordinator v1.Coordinator
	at          time.Time
}

func newSightings() *sightings {
	s := &sightings{pods: map[string]*corev1.Pod{}, news: make(chan struct{}, 1)}
	s.begin()
	return s
}

// begin forgets what was seen before.
func (s *sightings) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses, s.labelled, s.routed = nil, map[string]time.Time{}, map[string]time.Time{}
}

// watch watches objects of a kind in the group's namespace, until the context ends.
func (s *sightings) watch(ctx context.Context, c client.WithWatch, list client.ObjectList) error {
	stream, err := c.Watch(ctx, list, client.InNamespace(sampleSpace))
	if err != nil {
		return err
	}
	go func() {
		defer stream.Stop()
		for event := range stream.ResultChan() {
			s.see(event, time.Now())
		}
		s.mu.Lock()
		s.ended = fmt.Errorf("the watch of %T ended", list)
		s.mu.Unlock()
		s.tell()
	}()
	return nil
}

func (s *sightings) see(event watch.Event, at time.Time) {
	s.mu.Lock()
	switch object := event.Object.(type) {
	case *v1.ElectionGroup:
		if object.Name == sample {
			s.seeGroup(object, at)
		}
	case *corev1.Pod:
		s.pods[object.Name] = object
		if event.Type == watch.Deleted {
			delete(s.pods, object.Name)
		}
		if object.Labels[v1.RoleLabel(sample)] == v1.RoleCoordinator && event.Type != watch.Deleted {
			first(s.labelled, object.Name, at)
		}
	case *discoveryv1.EndpointSlice:
		if object.Labels[discoveryv1.LabelServiceName] == serviceName {
			s.leadsTo = nil
			for _, endpoint := range object.Endpoints {
				s.leadsTo = append(s.leadsTo, endpoint.Addresses...)
			}
			if len(s.leadsTo) == 1 {
				first(s.routed, s.leadsTo[0], at)
			}
		}
	}
	s.mu.Unlock()
	s.tell()
}

func (s *sightings) seeGroup(group *v1.ElectionGroup, at time.Time) {
	s.group = group
	if c := group.Status.Coordinator; c != nil {
		s.statuses = append(s.statuses, seenStatus{*c, at})
	}
}

func first(times map[string]time.Time, key string, at time.Time) {
	if _, known := times[key]; !known {
		times[key] = at
	}
}

func (s *sightings) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// await returns when what was seen makes the condition true.
func (s *sightings) await(ctx context.Context, what string, limit time.Duration, met func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s.mu.Lock()
		done, ended := met(), s.ended
		s.mu.Unlock()
		if done || ended != nil {
			return ended
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			return lateError{fmt.Sprintf("not within %s: %s; seen: %s", limit, what, s.describe())}
		}
	}
}

// lateError is something that took too long. It is a result like any other.
type lateError struct{ what string }

func (e lateError) Error() string { return e.what }

func (s *sightings) describe() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := "no group"
	if s.group != nil {
		said = fmt.Sprintf("term %d", s.group.Status.Term)
		for _, p := range s.group.Status.Processes {
			said += fmt.Sprintf(", %s %s %s", p.Pod, p.Status, p.Reason)
		}
	}
	return said + fmt.Sprintf("; the Service leads to %v", s.leadsTo)
}

// well reports whether all members are up, the highest leads, and all says so.
// The caller holds mu.
func (s *sightings) well() bool {
	g := s.group
	if g == nil || g.Status.Coordinator == nil || len(g.Status.Processes) != len(g.Spec.Members) {
		return false
	}
	for i, p := range g.Status.Processes {
		role, status := v1.RoleFollower, v1.ProcessNormal
		if i == 0 {
			role, status = v1.RoleCoordinator, v1.ProcessCoordinator
		}
		pod := s.pods[p.Pod]
		if p.Status != status || pod == nil || !ready(pod) || pod.Labels[v1.RoleLabel(sample)] != role {
			return false
		}
	}
	leader := s.pods[g.Status.Coordinator.Pod]
	return leader != nil && slices.Equal(s.leadsTo, []string{leader.Status.PodIP})
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ask returns what a function finds in what was seen.
func ask[T any](s *sightings, find func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return find()
}

var watchedKinds = []func() client.ObjectList{
	func() client.ObjectList { return &v1.ElectionGroupList{} },
	func() client.ObjectList { return &corev1.PodList{} },
	func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
}
