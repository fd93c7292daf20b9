package controllerruntime

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is the election as the manager's elector sees it. To get the lock takes as long as to be elected, and the
// elector has it until the manager has stopped. That the tenure ends is up to Run.
type lock struct{ *candidate }

var _ resourcelock.Interface = lock{}

// Get waits until the agent has made this process coordinator.
func (l lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		record, began, err := l.record()
		if err != nil || record != nil {
			return record, []byte(l.identity), err
		}
		l.readyOnce.Do(func() { close(l.ready) })
		select {
		case <-began:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// record returns nil without an error unless this process is coordinator, and a channel that is closed when it is.
func (l lock) record() (*resourcelock.LeaderElectionRecord, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.running:
		return nil, nil,
			errors.New("the manager doesn't run in the election: call Run of the election in place of the manager's Start")
	case l.acquired():
		return &resourcelock.LeaderElectionRecord{HolderIdentity: l.identity}, nil, nil
	case l.acquirable():
		return &resourcelock.LeaderElectionRecord{}, nil, nil // Nobody holds the lock, so the elector acquires it.
	}
	return nil, l.began, nil
}

// Update acquires or keeps the lock. To release it has no effect: Run does that.
func (l lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.acquired() && !l.acquirable() {
		return fmt.Errorf("this process isn't coordinator of group %s, or stops", l.group)
	}
	l.tenure.acquired = true
	return nil
}

// Create fails, since the lock always exists.
func (l lock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("the lock exists")
}

func (l lock) RecordEvent(string) {}

func (l lock) Identity() string { return l.identity }

func (l lock) Describe() string { return "group " + l.group }
